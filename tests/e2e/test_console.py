"""The console in a real browser, over a real service: each page, live parts, hostile content, rights, axe."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tarry.api.access.principal import ANYBODY, Principal, parsed_grants
from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt, RepeatedMessage
from tarry.testing.pytest_plugin import fresh_name
from tests.support.api import Api, ApiConfig, make_token
from tests.support.brokers import wait_until
from tests.support.browser import DESKTOP, PHONE, opened
from tests.support.console import api_process, get, get_json, served_to, without_cluster
from tests.support.processes import Serve, ServeConfig

HTML: Final = "<img src=x onerror=alert(1)><script>alert(2)</script>"
RTL: Final = "\u202efdp.exe\u2066 שלום"
BYTES: Final = b"\xff\xfe\x00key\x80"
BIG: Final = b"x" * 900_000
PAGES: Final = ("/", "/waiting", "/schedules", "/dead", "/targets", "/retries", "/partitions", "/audit", "/search")


@dataclass(slots=True)
class Scene:
    """A service with messages of all kinds, and a console over it."""

    url: str
    config: ServeConfig
    directory: Path
    target: str
    waits: Receipt
    hostile: dict[str, Receipt]
    fired: Receipt

    @property
    def intake(self) -> str:
        return self.config.intake

    def path_of(self, page: str) -> str:
        return f"{page}?q={self.fired.handle.id}x" if page == "/search" else page


@pytest.fixture(scope="module")
def scene(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory, name = tmp_path_factory.mktemp("console"), fresh_name("console")
    target = f"{name}.out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    config = ServeConfig(
        bootstrap,
        f"{name}.in",
        partitions=2,
        group=f"{name}.group",
        intake_settings={"max_delay": "90d"},
        overflow={"from": "5s", "width": "2s", "size": 8},
    )
    serve = Serve(config, directory)
    try:
        serve.start()
        serve.wait_serving()
        with DelayedProducer(bootstrap, config.intake) as producer, OutcomeReader(bootstrap, config.intake) as outcomes:
            hours = [timedelta(hours=number * 0.7) for number in range(1, 40)]
            list(producer.send_many([DelayedMessage(target, b"{}", b"k", delay=delay) for delay in hours]))
            waits = producer.send(
                target, b'{"order": 17}', key=b"order-17", delay=timedelta(minutes=20), headers=[("trace", b"abc")]
            )
            hostile = {
                "html": producer.send(
                    target, HTML.encode(), key=HTML.encode(), delay=timedelta(hours=1), headers=[(HTML, HTML.encode())]
                ),
                "rtl": producer.send(target, RTL.encode(), key=RTL.encode(), delay=timedelta(hours=1)),
                "bytes": producer.send(target, BYTES, key=BYTES, delay=timedelta(hours=1), headers=[("h", BYTES)]),
                "big": producer.send(target, BIG, key=b"k" * 5_000, delay=timedelta(hours=1)),
            }
            list(
                producer.send_many(
                    [
                        RepeatedMessage(
                            target, b"r", b"customer-1", HTML.encode(), cron="0 8 * * *", zone="Asia/Tokyo"
                        ),
                        RepeatedMessage(target, b"r", b"customer-2", b"sweep", every=timedelta(hours=6)),
                    ]
                )
            )
            fired = producer.send(target, b"now", key=b"done-1", delay=timedelta(0))
            dead = producer.send(f"{name}.none", b"{}", key=HTML.encode(), delay=timedelta(0))
            assert outcomes.await_outcome(fired, 60)["outcome"] == "fired"
            assert outcomes.await_outcome(dead, 60)["outcome"] == "dead"
        with api_process(config, directory) as url:
            yield Scene(url, config, directory, target, waits, hostile, fired)
    finally:
        serve.close()


@pytest.mark.parametrize("path", PAGES)
def test_each_page_opens_without_trouble_fits_a_phone_and_axe_has_nothing_to_say(
    scene: Scene, browser: Browser, path: str
) -> None:
    with opened(browser) as watched:
        watched.page.goto(scene.url + scene.path_of(path))
        expect(watched.page.locator("h1")).to_be_visible()
        expect(watched.page.locator(".env")).to_have_text("staging")
        assert watched.axe() == []
        background = "getComputedStyle(document.body).backgroundColor"
        light = watched.page.evaluate(background)
        watched.page.emulate_media(color_scheme="dark")
        watched.page.reload()
        expect(watched.page.locator("h1")).to_be_visible()
        assert watched.page.evaluate(background) != light
        assert watched.axe(rules=["color-contrast"]) == []
        watched.page.set_viewport_size(PHONE)
        watched.page.reload()
        assert watched.width() <= PHONE["width"]
        assert watched.troubles == []


def test_the_page_of_a_message_is_no_wider_than_a_phone(scene: Scene, browser: Browser) -> None:
    with opened(browser, size=PHONE) as watched:
        watched.page.goto(f"{scene.url}/message/{scene.hostile['big'].handle}")
        assert watched.width() <= PHONE["width"]


@pytest.fixture(scope="module")
def without_scripts(browser: Browser) -> Iterator[Page]:
    with opened(browser, scripts=False) as watched:
        yield watched.page


@pytest.mark.parametrize("path", PAGES)
def test_each_page_works_without_javascript(scene: Scene, without_scripts: Page, path: str) -> None:
    without_scripts.goto(scene.url + scene.path_of(path))
    expect(without_scripts.locator("main")).to_contain_text("UTC")


def test_the_overview_counts_what_waits_and_its_bars_zoom(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        watched.page.goto(scene.url)
        # Of all bars, this one certainly holds messages: the counts of later ones are spread over wider buckets.
        watched.page.get_by_title(re.compile(r"due within 1 h(?!\w)")).click()
        watched.page.wait_for_url(re.compile("due_from="))
        watched.page.get_by_role("link", name="List these messages").click()
        expect(watched.page.locator("tbody tr").first).to_be_visible()
        assert watched.troubles == []


def test_the_overview_links_what_is_not_well(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        watched.page.goto(scene.url)
        watched.page.get_by_role("link", name=re.compile("dead letter")).click()
        expect(watched.page.locator("h1")).to_have_text("Dead")
        watched.page.get_by_role("link", name="unknown-target").first.click()
        watched.page.wait_for_url(re.compile("code=unknown-target"))
        assert watched.troubles == []


def test_a_live_page_shows_what_changes_and_keeps_the_focus(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched, DelayedProducer(scene.config.bootstrap, scene.intake) as producer:
        page = watched.page
        page.goto(f"{scene.url}/partitions")
        page.evaluate("document.querySelector('#live').dataset.mark = 'kept'; document.querySelector('#q').focus()")
        page.locator("#q").press_sequentially("typed")
        before = page.locator("tbody").first.inner_text()
        list(producer.send_many([DelayedMessage(scene.target, b"x", b"k", delay=timedelta(days=3))] * 20))
        page.wait_for_function("old => document.querySelector('tbody').innerText !== old", arg=before, timeout=30_000)
        assert page.evaluate("document.activeElement.id") == "q"
        expect(page.locator("#q")).to_have_value("typed")
        assert watched.troubles == []


def test_deliveries_are_drawn_and_listed_by_target(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched, DelayedProducer(scene.config.bootstrap, scene.intake) as producer:
        page = watched.page
        page.goto(scene.url)
        for _ in range(30):
            list(producer.send_many([DelayedMessage(scene.target, b"x", b"k", delay=timedelta(0))] * 5))
            with suppress(AssertionError):
                expect(page.locator("#chart-rate canvas")).to_be_visible(timeout=1_000)
                break
        expect(page.locator("#chart-rate .u-legend")).to_contain_text(scene.target)
        expect(page.get_by_role("link", name=scene.target).first).to_be_visible()
        assert watched.troubles == []


def test_a_message_is_found_by_handle_id_key_and_place(scene: Scene, browser: Browser) -> None:
    receipt = scene.waits
    with opened(browser) as watched:
        page = watched.page
        for text in (str(receipt.handle), receipt.handle.id):
            page.goto(scene.url)
            page.keyboard.press("/")
            page.keyboard.type(text)
            page.keyboard.press("Enter")
            page.wait_for_url(re.compile(re.escape(f"/message/{receipt.handle}")), timeout=30_000)
        expect(page.locator(".verdict")).to_contain_text("It waits in level")
        expect(page.locator("#live")).to_contain_text("order-17")
        expect(page.locator("pre").first).to_contain_text('"order": 17')
        place = page.locator(".card header", has_text="read at").inner_text().partition("read at ")[2].strip()
        page.goto(f"{scene.url}/search?q={place}")
        page.wait_for_url(re.compile(re.escape(str(receipt.handle))))
        page.goto(f"{scene.url}/search?q=order-17")
        page.get_by_role("link", name=receipt.handle.id).click()
        expect(page.locator(".verdict")).to_contain_text("It waits")
        assert watched.axe() == []
        assert watched.troubles == []


def test_a_delivered_message_is_found_by_its_id_and_by_its_place_at_the_target(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        page = watched.page
        for text in (scene.fired.handle.id, f"{scene.target}/0/0"):
            page.goto(f"{scene.url}/search?q={text}")
            expect(page.locator(".verdict")).to_contain_text("It was delivered to", timeout=30_000)
        assert watched.troubles == []


@pytest.mark.parametrize("kind", ["html", "rtl", "bytes", "big"])
def test_hostile_content_is_shown_and_does_nothing(scene: Scene, browser: Browser, kind: str) -> None:
    with opened(browser) as watched:
        page = watched.page
        for form in ("", "?as=text", "?as=hex", "?as=json"):
            page.goto(f"{scene.url}/message/{scene.hostile[kind].handle}{form}")
            expect(page.locator(".verdict")).to_contain_text("It waits")
            assert page.locator("main img, main script").count() == 0
            # 64 KiB are 4,096 rows of hex; the frame and the chosen part of 900 kB are all that comes.
            assert len(page.content()) < 600_000
        expect(page.locator("pre").first).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name=re.compile("Download")).click()
        value = Path(download.value.path()).read_bytes()
        assert value == {"html": HTML.encode(), "rtl": RTL.encode(), "bytes": BYTES, "big": BIG}[kind]
        page.goto(f"{scene.url}/waiting")
        expect(page.locator("tbody tr").first).to_be_visible()
        assert watched.axe() == []
        assert watched.troubles == []


def test_a_message_is_cancelled_and_one_is_delivered_now_from_its_page(scene: Scene, browser: Browser) -> None:
    with DelayedProducer(scene.config.bootstrap, scene.intake) as producer:
        first, second = (producer.send(scene.target, b"x", key=b"acted", delay=timedelta(hours=2)) for _ in range(2))
    with opened(browser) as watched:
        page = watched.page
        page.goto(f"{scene.url}/message/{first.handle}")
        page.get_by_label("Reason").first.fill("wrong order")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("form.act output").first).to_contain_text("Done", timeout=20_000)
        page.goto(f"{scene.url}/message/{second.handle}")
        page.get_by_role("button", name="Deliver now").click()
        expect(page.locator("form.act output", has_text="Done")).to_be_visible(timeout=20_000)
        assert watched.axe() == []
        assert watched.troubles == []


def test_a_target_is_paused_and_resumed_on_its_page(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        page = watched.page
        target = page.locator("details", has_text=scene.target)
        page.goto(f"{scene.url}/targets")
        target.locator("summary").click()
        target.get_by_label("Reason").fill("billing is moved")
        target.get_by_role("button", name="Pause").click()
        expect(target.locator("output")).to_contain_text("Done", timeout=20_000)
        row = page.locator("tbody tr", has_text=scene.target)
        expect(row).to_contain_text("billing is moved", timeout=20_000)
        assert watched.axe() == []
        page.goto(scene.url)
        expect(page.locator("main")).to_contain_text(f"{scene.target} is paused: billing is moved")
        page.goto(f"{scene.url}/targets")
        target.locator("summary").click()
        target.get_by_label("Reason").fill("billing is back")
        target.get_by_role("button", name="Resume").click()
        expect(target.locator("output")).to_contain_text("Done", timeout=20_000)
        expect(row).not_to_contain_text("billing is moved", timeout=20_000)
        assert watched.troubles == []


def test_hostile_dead_letters_and_schedules_do_nothing_either(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        page = watched.page
        page.goto(f"{scene.url}/dead")
        page.locator("td a[href*='/dead/']").first.click()
        expect(page.locator(".verdict")).to_contain_text("unknown-target")
        expect(page.locator("main")).to_contain_text(HTML)
        assert watched.axe() == []
        # From a letter to all like it, and what can be done about them.
        page.get_by_role("link", name="All letters with this code and target").click()
        expect(page.locator("#letters")).to_contain_text(
            f"with code unknown-target for {scene.intake.removesuffix('.in')}.none"
        )
        expect(page.get_by_role("button", name="Redrive…")).to_be_enabled()
        page.goto(f"{scene.url}/schedules")
        expect(page.locator("tbody")).to_contain_text(HTML)
        expect(page.locator("tbody")).to_contain_text("08:00 in Asia/Tokyo")
        assert page.locator("main img, main script").count() == 0
        assert watched.troubles == []


def test_who_may_only_look_sees_no_key_name_header_or_value(scene: Scene, browser: Browser) -> None:
    looker = Principal("eve", parsed_grants(["look"]))
    with served_to(looker, scene.config, scene.directory) as url, opened(browser) as watched:
        page = watched.page
        handle = scene.waits.handle
        for path in (*map(scene.path_of, PAGES), f"/message/{handle}", f"/message/{handle}?as=text"):
            page.goto(url + path)
            expect(page.locator("h1")).to_be_visible()
            for secret in ("order-17", '"order": 17', "onerror", "customer-1", "sweep", "fdp.exe", "trace"):
                assert secret not in page.content(), f"{path} shows {secret}"
        assert get(url, f"/message/{handle}/value")[0] == 403
        rows = get_json(url, "/v1/pending/messages?limit=100")["messages"]
        assert rows
        assert all(one["key"] is None and one["hidden"] == ["key", "name", "headers", "value"] for one in rows)
        # Asking for a key must not tell whether there is one.
        assert get_json(url, "/v1/pending/messages?key=order-17")["messages"] == []
        assert watched.troubles == []


@pytest.mark.parametrize("grants", [[], ["send"], ["look:elsewhere.*"]])
def test_without_rights_nothing_is_seen(scene: Scene, browser: Browser, grants: list[str]) -> None:
    stranger = Principal("mallory", parsed_grants(grants))
    may_look = "look:elsewhere.*" in grants
    with served_to(stranger, scene.config, scene.directory) as url, opened(browser) as watched:
        for path in (*map(scene.path_of, PAGES), f"/message/{scene.waits.handle}", "/dead"):
            answer = watched.page.goto(url + path)
            assert answer is not None
            assert answer.status in ({200, 403} if may_look else {403})
            for secret in ("order-17", scene.waits.handle.id, "customer-1", f"{scene.target}<"):
                shown = watched.page.content().replace(str(scene.waits.handle), "")
                assert secret not in shown, f"{path} shows {secret}"
        expected = 200 if may_look else 403
        assert get(url, "/v1/pending/messages")[0] == expected
        if may_look:
            assert get_json(url, "/v1/pending/messages")["messages"] == []
            assert get_json(url, "/v1/dead")["letters"] == []


def test_a_strict_policy_for_content_breaks_no_page(scene: Scene, browser: Browser) -> None:
    with served_to(ANYBODY, scene.config, scene.directory) as url, opened(browser) as watched:
        for path in (*map(scene.path_of, PAGES), f"/message/{scene.hostile['html'].handle}"):
            watched.page.goto(url + path)
            expect(watched.page.locator("h1")).to_be_visible()
        watched.page.goto(url)
        expect(watched.page.locator("#chart-rate canvas")).to_be_visible(timeout=20_000)
        assert watched.troubles == []


def test_a_server_for_reading_only_offers_no_act(scene: Scene, browser: Browser) -> None:
    def read_only(found: Any) -> Any:
        return found.model_copy(update={"api": found.api.model_copy(update={"is_read_only": True})})

    with served_to(ANYBODY, scene.config, scene.directory, read_only) as url, opened(browser) as watched:
        for path in ("/waiting", "/dead", "/targets", f"/message/{scene.waits.handle}"):
            watched.page.goto(url + path)
            expect(watched.page.locator(".chip", has_text="read-only")).to_be_visible()
            assert watched.page.locator("form.act").count() == 0


def test_a_server_that_is_gone_is_a_banner_over_the_last_known_state(
    scene: Scene, browser: Browser, tmp_path: Path
) -> None:
    with opened(browser) as watched:
        with api_process(scene.config, tmp_path) as url:
            watched.page.goto(f"{url}/partitions")
            expect(watched.page.locator("tbody").first).to_contain_text("served")
        expect(watched.page.locator("#lost")).to_be_visible(timeout=20_000)
        expect(watched.page.locator("tbody").first).to_contain_text("served")


def test_without_kafka_a_page_says_so(scene: Scene, browser: Browser, tmp_path: Path) -> None:
    away = without_cluster(scene.config, "127.0.0.1:1")
    with api_process(away, tmp_path) as url, opened(browser) as watched:
        answer = watched.page.goto(f"{url}/partitions", timeout=90_000)
        assert answer is not None
        assert answer.status == 503
        expect(watched.page.locator("h1")).to_have_text("Kafka does not answer")


def test_an_intake_that_does_not_exist_says_what_to_do_first(scene: Scene, browser: Browser, tmp_path: Path) -> None:
    new = ServeConfig(scene.config.bootstrap, fresh_name("new"), partitions=1, group=fresh_name("group"))
    with api_process(new, tmp_path) as url, opened(browser) as watched:
        for path in PAGES:
            watched.page.goto(url + path, timeout=60_000)
            expect(watched.page.locator("h1")).to_be_visible()
        watched.page.goto(url)
        expect(watched.page.locator("main")).to_contain_text("tarry serve")
        expect(watched.page.locator("main")).to_contain_text("tarry send")
        assert watched.axe() == []
        assert watched.troubles == []


def test_pages_of_messages_list_each_once_however_many_pages(scene: Scene) -> None:
    def pages() -> Iterator[dict[str, Any]]:
        cursor = ""
        while True:
            page = get_json(scene.url, f"/v1/pending/messages?limit=7{cursor}")
            yield page
            if page["next"] is None:
                return
            cursor = f"&cursor={page['next']}"

    found = [one for page in pages() for one in page["messages"]]
    assert len({one["handle"] for one in found}) == len(found) >= 45
    assert [one["due"] for one in found] == sorted(one["due"] for one in found)
    assert get(scene.url, "/v1/pending/messages?cursor=nonsense")[0] == 400
    counted = get_json(scene.url, "/v1/pending")
    assert sum(row["at_most"] for row in counted["rows"]) == counted["at_most"] - counted["parked_at_most"]


def dead_for(scene: Scene, target: str, count: int) -> None:
    """Make dead letters: of messages for a topic that does not exist."""
    with (
        DelayedProducer(scene.config.bootstrap, scene.intake) as producer,
        OutcomeReader(scene.config.bootstrap, scene.intake) as outcomes,
    ):
        for number in range(count):
            receipt = producer.send(target, b"%d" % number, key=HTML.encode(), delay=timedelta(0))
            assert outcomes.await_outcome(receipt, 60)["outcome"] == "dead"
    # What was read for others within the last second is shown again.
    wait_until(lambda: len(get_json(scene.url, f"/v1/dead?target={target}")["letters"]) == count, "they are listed")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_dead_letters_are_redriven_from_their_page_after_a_dry_run(
    scene: Scene, browser: Browser, *, scripts: bool
) -> None:
    target = f"{scene.target}-redriven-{scripts}".lower()
    dead_for(scene, target, 3)
    admin = AdminClient({"bootstrap.servers": scene.config.bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    with opened(browser, scripts=scripts) as watched:
        page = watched.page
        page.goto(f"{scene.url}/dead?target={target}")
        page.get_by_role("button", name="Redrive…").click()
        expect(page.locator("h1")).to_have_text("Redrive: dry run")
        expect(page.locator("main")).to_contain_text("3 dead letters")
        expect(page.locator("main .env")).to_have_text("staging")
        expect(page.locator("main")).to_contain_text(HTML)
        assert page.locator("main img, main script").count() == 0
        if scripts:
            assert watched.axe() == []
        page.get_by_label("Reason").fill("the topic is there")
        page.get_by_label("Type").fill("something else")
        page.get_by_role("button", name="Redrive 3").click()
        expect(page.get_by_role("alert")).to_contain_text("nothing was done")
        expect(page.get_by_label("Reason")).to_have_value("the topic is there")
        page.get_by_label("Type").fill(target)
        page.get_by_role("button", name="Redrive 3").click()
        page.wait_for_url(re.compile("/operations/"))
        if not scripts:  # nothing is live then
            id_ = page.url.rpartition("/")[2]
            wait_until(lambda: get_json(scene.url, f"/v1/operations/{id_}")["state"] == "done", "it is done")
            page.reload()
        expect(page.locator(".verdict")).to_contain_text("Done: 3 of 3 done", timeout=30_000)
        expect(page.locator("main")).to_contain_text("the topic is there")
        if scripts:
            assert watched.axe() == []
        page.get_by_role("link", name="All operations, and who did what").click()
        expect(page.locator("main")).to_contain_text("the topic is there")
        # The page that a wrong text leads to is an error, and the browser says so.
        assert [one for one in watched.troubles if "422" not in one] == []

    def marks() -> list[tuple[bool, bool]]:
        found = get_json(scene.url, f"/v1/dead?target={target}&sent_again=true")["letters"]
        return [(one["is_sent_again"], one["is_dismissed"]) for one in found]

    # The list is shared by all viewers for a moment.
    wait_until(lambda: marks() == [(True, False)] * 3, "the list shows that they were sent again")


def test_dead_letters_are_dismissed_and_their_page_says_so(scene: Scene, browser: Browser) -> None:
    target = f"{scene.target}-dismissed"
    dead_for(scene, target, 1)
    with opened(browser, size=PHONE) as watched:
        page = watched.page
        page.goto(f"{scene.url}/dead?target={target}")
        page.get_by_role("button", name="Dismiss…").click()
        expect(page.locator("main")).to_contain_text("They stay in")
        assert watched.width() <= PHONE["width"]
        page.get_by_label("Reason").fill("a typing error")
        page.get_by_label("Type").fill(target)
        page.get_by_role("button", name="Dismiss 1").click()
        expect(page.locator(".verdict")).to_contain_text("Done: 1 of 1 done", timeout=30_000)
        assert watched.width() <= PHONE["width"]
        wait_until(lambda: not get_json(scene.url, f"/v1/dead?target={target}")["letters"], "it is done with")
        page.goto(f"{scene.url}/dead?target={target}&sent_again=true")
        expect(page.locator(".chip", has_text="dismissed")).to_be_visible()
        assert watched.troubles == []


@pytest.mark.parametrize("act", ["Move", "Cancel"])
def test_what_waits_is_moved_or_cancelled_from_its_page(scene: Scene, browser: Browser, act: str) -> None:
    target = f"{scene.target}-{act.lower()}"
    admin = AdminClient({"bootstrap.servers": scene.config.bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    with DelayedProducer(scene.config.bootstrap, scene.intake) as producer:
        receipts = [producer.send(target, b"x", key=b"k", delay=timedelta(hours=2)) for _ in range(2)]
    with opened(browser) as watched:
        page = watched.page
        page.goto(f"{scene.url}/waiting?target={target}")
        if act == "Move":
            page.get_by_label("Later by").fill("1h")
        page.get_by_role("button", name=f"{act}…").click()
        expect(page.locator("main")).to_contain_text("2 messages")
        assert watched.axe() == []
        page.get_by_label("Reason").fill(f"{act} them")
        page.get_by_label("Type").fill(target)
        page.get_by_role("button", name=f"{act} 2").click()
        expect(page.locator(".verdict")).to_contain_text("Done: 2 of 2 done", timeout=30_000)
        for receipt in receipts:  # the service decides about the cancel of a filed message near its due time
            page.goto(f"{scene.url}/message/{receipt.handle}")
            expect(page.locator(".verdict")).to_contain_text("a cancel of it waits")
        page.goto(f"{scene.url}/waiting?target={target}")
        expect(page.locator("tbody tr")).to_have_count(4 if act == "Move" else 2)
        page.goto(f"{scene.url}/audit")
        expect(page.locator("main")).to_contain_text(f"{act} them")
        assert watched.troubles == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_only_the_messages_that_are_ticked_are_cancelled(scene: Scene, browser: Browser, *, scripts: bool) -> None:
    target = f"{scene.target}-ticked-{scripts}".lower()
    with DelayedProducer(scene.config.bootstrap, scene.intake) as producer:
        receipts = [producer.send(target, b"x", key=b"k", delay=timedelta(hours=2)) for _ in range(3)]
    with opened(browser, scripts=scripts) as watched:
        page = watched.page
        page.goto(f"{scene.url}/waiting?target={target}")
        if scripts:
            page.get_by_label("Tick all on this page").check()
            expect(page.locator("input[name=pick]:checked")).to_have_count(3)
            page.get_by_label(f"Tick {receipts[0].handle.id}").uncheck()
        else:
            for one in receipts[1:]:
                page.get_by_label(f"Tick {one.handle.id}").check()
        page.get_by_role("button", name="Cancel…").click()
        expect(page.locator("main")).to_contain_text("2 messages")
        expect(page.locator("main")).to_contain_text(receipts[1].handle.id)
        expect(page.locator("main")).to_contain_text(receipts[2].handle.id)
        expect(page.locator("main")).not_to_contain_text(receipts[0].handle.id)
        # Back leads to the list as it was filtered.
        page.get_by_role("link", name="Back").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        assert watched.troubles == []


def test_an_operation_that_does_not_exist_is_a_page_that_says_so(scene: Scene, browser: Browser) -> None:
    with opened(browser) as watched:
        watched.page.goto(f"{scene.url}/operations/00000000-0000-4000-8000-000000000000")
        expect(watched.page.locator("h1")).to_have_text("There is nothing here")


@pytest.fixture(scope="module")
def guarded(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a server that asks for tokens, and a token."""
    directory = tmp_path_factory.mktemp("guarded")
    tokens, keys = directory / "tokens.json", directory / "keys"
    token = make_token(tokens, "ann", "look")
    keys.write_text("k" * 40, encoding="ascii")
    settings = {"port": 0, "tokens": str(tokens), "session_keys": str(keys), "environment": "staging"}
    config = ApiConfig(scene.config.bootstrap, scene.config.intake, 2, scene.config.group, api=settings)
    with Api(config, directory) as api:
        yield api.url, token


@pytest.mark.parametrize(("theme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)])
def test_whoever_comes_logs_in_by_a_token_and_goes_on_to_the_page(
    guarded: tuple[str, str], browser: Browser, theme: str, size: ViewportSize
) -> None:
    url, token = guarded
    with opened(browser, theme=theme, size=size) as watched:
        page = watched.page
        page.goto(f"{url}/partitions")
        expect(page.locator("h1")).to_have_text("Log in")
        expect(page.locator(".env")).to_have_text("staging")
        assert watched.axe() == []
        assert watched.width() <= size["width"]
        page.fill("#token", "tarry_wrong")
        page.click("button")
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        assert watched.axe() == []
        assert len(watched.troubles) == 1, "the browser says that the answer was 401"
        page.fill("#token", token)
        page.click("button")
        expect(page.locator("h1")).to_have_text("Partitions")
        assert page.url == f"{url}/partitions"
