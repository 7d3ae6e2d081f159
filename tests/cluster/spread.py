"""All gateways of a cluster as if they were one server behind the worst possible balancer: each
call goes to another gateway than the last. Holds no test."""

from itertools import cycle

from tests.cluster.running import Cluster
from tests.e2e.chatting import Address


class SpreadSite(Address):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = cycle(cluster.gateways)

    @property
    def url(self) -> str:
        """The next gateway's, so another one each time."""
        return next(self._turns).url

    async def metric(self, name: str) -> float:
        return await self._cluster.metric(name)
