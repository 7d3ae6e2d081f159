"""What is looked at before a server starts: who else can read its files, and its own limits."""

import logging
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidewire.runtime.config import Config

_OTHERS: Final = 0o007
_GROUP_WRITES: Final = 0o020

_logger: Final = logging.getLogger(__name__)


def take_precautions(config: Config) -> None:
    """Say what an operator should mend, and take as many files as the machine allows."""
    for sentence in doubts(config):
        _logger.warning(sentence)
    raise_file_limit()


def doubts(config: Config) -> Iterator[str]:
    """What may be seen or changed by those who should not; a sentence each."""
    key = config.server.tls_key
    if key is not None and _mode(key) & _OTHERS:
        yield f"{key} can be read by every user of this machine; 'chmod 600 {key}' mends it"
    data_dir = config.data_dir
    if _mode(data_dir) & (_OTHERS | _GROUP_WRITES):
        yield f"{data_dir} is open to others on this machine; 'chmod 700 {data_dir}' mends it"
    if config.identity.jwks_url.startswith("http://"):
        yield (
            "identity.jwks_url begins with http://: who can change what comes over that network "
            "can sign tokens"
        )


def raise_file_limit() -> None:
    """A connection is a file. The soft limit is often 1024, the hard one is the machine's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _logger.warning("at most %s files can be open: %s", soft, error)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        # It is not there yet, or is told by those who need it.
        return 0
