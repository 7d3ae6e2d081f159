"""How soon the first message is on the screen. Slow: browsers are started for it.

The bounds are the issue's, for a machine that does nothing else; the median of five tries counts.
On a busy one another five are tried of what was too slow, three times at most.
"""

from statistics import median

import pytest

from tests.web_app.people import Person, Street

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MS_MAX = {"cold": 1_000, "warm": 300}
TRIES = 5
ROUNDS = 4

PAINTED = """
new MutationObserver((_, observer) => {
    if (!document.querySelector("[role=log] article")) return;
    observer.disconnect();
    // After the next frame it is on the screen.
    requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now() }));
}).observe(document, {childList: true, subtree: true});
"""


def painted_ms(person: Person) -> float:
    """When the first message was painted, since the page was asked for."""
    person.page.wait_for_function("() => window.painted !== undefined")
    found: float = person.page.evaluate("window.painted")
    return found


def test_first_message_is_painted_at_once(street: Street) -> None:
    street.register("ben", "Ben Okafor")
    street.register("ann", "Ann Lee")
    ann = street.settled("ann")
    ann.log_in("ann")
    ann.write_to("ben")
    for number in range(30):
        ann.say(f"Message {number}")
    place = ann.page.url.removeprefix(street.site.url)
    ann.page.wait_for_function("() => navigator.serviceWorker.controller !== null")

    def open_again(*, is_cold: bool) -> float:
        """A browser that has just been started; a cold one has no file of the page."""
        again = street.settled("ann")
        again.page.add_init_script(PAINTED)
        if is_cold:
            session = again.page.context.new_cdp_session(again.page)
            session.send("Network.enable")
            session.send("Network.setCacheDisabled", {"cacheDisabled": True})
            session.send("Network.setBypassServiceWorker", {"bypass": True})
        again.visit(place)
        first_ms = painted_ms(again)
        if not is_cold:
            again.page.reload()
            first_ms = painted_ms(again)
        again.page.context.close()
        return first_ms

    ann.page.context.close()
    tried: dict[str, list[list[float]]] = {name: [] for name in MS_MAX}

    def is_in_time(name: str) -> bool:
        return any(median(times) <= MS_MAX[name] for times in tried[name])

    for _ in range(ROUNDS):
        for name, rounds in tried.items():
            if not is_in_time(name):
                rounds.append([open_again(is_cold=name == "cold") for _ in range(TRIES)])
    assert all(map(is_in_time, tried)), f"painted after so many ms: {tried}"
