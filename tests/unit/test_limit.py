"""Limits as values: what they mean, what they refuse, and the keys they give to jobs."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Breaker, ConfigurationError, Holdfast, HoldfastError, Limit, Task, UsageError
from holdfast.model import limit
from holdfast.model.job import Job, NewJob
from holdfast.settings import Settings
from holdfast.worker.execute import Judge
from holdfast.worker.prefetch import Lease


@pytest.fixture
def hf() -> Holdfast:
    """An application that connects to nothing."""
    return Holdfast("postgresql://nowhere/none")


def keys(task: Task[Any, Any], *args: Any, tenant: str | None = None, **kwargs: Any) -> tuple[str, ...] | None:
    return task.using(tenant=tenant).new_job(args, kwargs).keys


# -- what may be declared


def test_a_limit_says_its_numbers_and_nothing_else() -> None:
    assert Limit("a", concurrency=2).as_json() == {"concurrency": 2}
    assert Limit("a", rate=30, burst=5).as_json() == {"rate": 30, "per": 60, "burst": 5}
    assert Limit("a", rate=1, per=0.5).as_json() == {"rate": 1, "per": 0.5, "burst": 2}
    breaker = Limit("a", breaker=Breaker()).as_json()
    assert breaker == {"breaker_after": 5, "breaker_pause": 300, "breaker_cap": 3600}
    assert json.loads(json.dumps(Limit("a", concurrency=1, rate=2, breaker=Breaker()).as_json()))


@pytest.mark.parametrize(("rate", "per", "burst"), [(30, 60, 1), (600, 60, 10), (1, 3600, 1), (90, 60, 1.5), (5, 1, 5)])
def test_a_burst_is_one_seconds_worth_unless_given(rate: float, per: float, burst: float) -> None:
    assert Limit("a", rate=rate, per=per).as_json()["burst"] == burst
    assert Limit("a", rate=rate, per=per, burst=1).as_json()["burst"] == 1


REFUSED: dict[str, Callable[[], object]] = {
    "limits nothing": lambda: Limit("a"),
    "limits nothing;": lambda: Limit("a", per=3),
    "concurrency must be a whole number, 1 to 1,000,000,000, got 0": lambda: Limit("a", concurrency=0),
    "got True": lambda: Limit("a", concurrency=True),
    "got 1.5": lambda: Limit("a", concurrency=1.5),  # type: ignore[arg-type]
    "got 2147483648": lambda: Limit("a", concurrency=1 << 31),
    "rate must be above 0 and up to 1,000,000,000 starts, got 0": lambda: Limit("a", rate=0),
    "rate must be .* got -1": lambda: Limit("a", rate=-1),
    "rate must be .* got nan": lambda: Limit("a", rate=float("nan")),
    "rate must be .* got inf": lambda: Limit("a", rate=float("inf")),
    "rate must be .* got '30'": lambda: Limit("a", rate="30"),  # type: ignore[arg-type]
    "per must be a number of seconds above 0 .* got 0": lambda: Limit("a", rate=1, per=0),
    "per must be a number of seconds above 0 .* got -60": lambda: Limit("a", concurrency=1, per=-60),
    "burst must be 1 to 1,000,000,000 starts, got 0.5": lambda: Limit("a", rate=1, burst=0.5),
    "burst goes with a rate": lambda: Limit("a", concurrency=1, burst=5),
    "the key of a limit must have 1 to 300 characters, got 0": lambda: Limit("", concurrency=1),
    "the key of a limit must have 1 to 300 characters, got 301": lambda: Limit("a" * 301, concurrency=1),
    "the key of a limit must be a string, got 3": lambda: Limit(3, concurrency=1),  # type: ignore[arg-type]
    "contains a NUL": lambda: Limit("a\x00", concurrency=1),
    "lone surrogate": lambda: Limit("a\ud800", concurrency=1),
    "cannot be read: Single '}'": lambda: Limit("a:}", concurrency=1),
    "cannot be read: expected '}'": lambda: Limit("a:{b", concurrency=1),
    "the field {b.c}; a field is the name of an argument": lambda: Limit("a:{b.c}", concurrency=1),
    "the field {b\\[0\\]}": lambda: Limit("a:{b[0]}", concurrency=1),
    "the field {b:>3}": lambda: Limit("a:{b:>3}", concurrency=1),
    "the field {b!r}": lambda: Limit("a:{b!r}", concurrency=1),
    "the field {}": lambda: Limit("a:{}", concurrency=1),
    "the field {0}": lambda: Limit("a:{0}", concurrency=1),
    "reserved prefix 'queue:'.*'queue:{queue}'": lambda: Limit("queue:mail", concurrency=1),
    "reserved prefix 'tenant:'": lambda: Limit("tenant:{name}", concurrency=1),
    "could start with .*'tenant:'": lambda: Limit("tenant:{tenant}:{domain}", concurrency=1),
    "could start with the reserved prefix": lambda: Limit("{domain}", concurrency=1),
    "could start with the reserved prefix 'task:'": lambda: Limit("ta{domain}", concurrency=1),
    "breaker must be a Breaker": lambda: Limit("a", breaker=5),  # type: ignore[arg-type]
    "after must be a whole number": lambda: Breaker(after=0),
    "a breaker's pause must be a number of seconds": lambda: Breaker(pause=0),
    "a breaker's cap must be a number of seconds": lambda: Breaker(cap=float("inf")),
    "cap must be at least its pause, got pause=7200, cap=3600": lambda: Breaker(pause=7200),
    "counts no error never opens": lambda: Breaker(on=[]),
    "errors must be a list": lambda: Breaker(on="HTTP_503"),
    "errors must be a list, as": lambda: Breaker(on=ValueError),  # type: ignore[arg-type]
    "errors must be named by exception type or by code, got 503": lambda: Breaker(on=[503]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_values_are_refused_where_they_are_written(message: str) -> None:
    with pytest.raises(HoldfastError, match=message.replace("{", "\\{").replace("}", "\\}")):
        REFUSED[message]()


@pytest.mark.parametrize("key", ["smtp", "a:{b}", "queue:{queue}", "tenant:{tenant}", "task:{task}", "t", "queues:{b}"])
def test_keys_that_can_be_taken_for_no_other_are_accepted(key: str) -> None:
    assert Limit(key, concurrency=1).key == key


def test_limits_are_values() -> None:
    assert Limit("a", concurrency=1) == Limit("a", concurrency=1)
    assert hash(Limit("a", breaker=Breaker(on=["X"]))) == hash(Limit("a", breaker=Breaker(on=("X",))))
    with pytest.raises(AttributeError):
        Limit("a", concurrency=1).rate = 3  # type: ignore[misc]


# -- patterns


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        ("smtp", "smtp"),
        ("domain:{domain}", "domain:%"),
        ("a_b%c\\d:{x}-{y}", "a\\_b\\%c\\\\d:%-%"),
        ("{{x}}:{x}", "{x}:%"),
    ],
)
def test_a_pattern_is_the_template_with_its_fields_open(key: str, pattern: str) -> None:
    assert Limit(key, concurrency=1).pattern == pattern


# -- keys


def test_keys_come_from_arguments_by_name_or_place(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("domain:{domain}", concurrency=2), Limit("page:{domain}/{page}", rate=1)])
    async def crawl(domain: str, page: int = 1) -> None: ...

    assert keys(crawl, "a.b") == ("domain:a.b", "page:a.b/1")
    assert keys(crawl, page=7, domain="c") == ("domain:c", "page:c/7")
    assert keys(crawl, "{domain}") == ("domain:{domain}", "page:{domain}/1")  # braces in a value are no template


def test_a_task_with_two_orders_is_refused(hf: Holdfast) -> None:
    limits = [Limit("order:{src}"), Limit("smtp", concurrency=2), Limit("order:{dst}")]
    with pytest.raises(
        ConfigurationError, match=r"orders 'order:{src}' and 'order:{dst}', but a job can be in one order only"
    ):

        @hf.task(limits=limits)
        def transfer(src: str, dst: str) -> None: ...


def test_keys_may_name_the_tenant_the_queue_and_the_task(hf: Holdfast) -> None:
    limits = [Limit("{{b}}:{tenant}", rate=1), Limit("queue:{queue}", rate=1), Limit("task:{task}", rate=1)]

    @hf.task(name="shop.bill", queue="money", limits=limits)
    async def bill() -> None: ...

    assert keys(bill, tenant="acme") == ("{b}:acme", "queue:money", "task:shop.bill")
    assert bill.using(queue="other", tenant="b").new_job((), {}).keys == ("{b}:b", "queue:other", "task:shop.bill")


def test_a_limit_of_tenants_does_not_apply_to_a_job_without_one(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("tenant:{tenant}", concurrency=2)])
    async def one() -> None: ...

    @hf.task(limits=[Limit("tenant:{tenant}", concurrency=2), Limit("smtp", concurrency=1)])
    async def two() -> None: ...

    assert (keys(one), keys(two), keys(one, tenant="a")) == (None, ("smtp",), ("tenant:a",))


def test_an_argument_comes_before_what_is_reserved(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("client:{tenant}", concurrency=1)])
    async def bill(tenant: str | None) -> None: ...

    assert keys(bill, "arg", tenant="job") == ("client:arg",)
    with pytest.raises(UsageError, match=r"'client:\{tenant\}' of task .*bill' needs a value, but 'tenant' is None"):
        bill.enqueue(None)


def test_a_key_that_two_limits_give_is_one_key(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("host:{a}", concurrency=1), Limit("host:{b}", concurrency=1)])
    async def copy(a: str, b: str) -> None: ...

    assert keys(copy, "x", "y") == ("host:x", "host:y")
    assert keys(copy, "y", "x") == ("host:y", "host:x")  # in the order of the limits
    assert keys(copy, "x", "x") == ("host:x",)


class Colour(enum.StrEnum):
    RED = "red"


def test_keys_are_formatted_with_the_values_the_handler_gets(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("all:{n},{x},{ok},{id},{colour},{words}", rate=1)])
    async def show(n: int, x: float, ok: bool, id: uuid.UUID, colour: Colour, words: list[str]) -> None: ...

    given = uuid.uuid4()
    assert keys(show, 1, 2, True, str(given), "red", ("a",)) == (f"all:1,2.0,True,{given},red,['a']",)


def test_a_key_that_cannot_be_is_refused_when_the_job_is_enqueued(hf: Holdfast) -> None:
    @hf.task(name="crawl", limits=[Limit("d:{domain}/{page}", rate=1)])
    async def crawl(domain: str, page: int | None = None) -> None: ...

    with pytest.raises(UsageError, match=r"limit 'd:\{domain\}/\{page\}' of task 'crawl' needs .* 'page' is None"):
        crawl.enqueue("a")
    with pytest.raises(
        UsageError, match=r"'d:\{domain\}/\{page\}' of task 'crawl' gives a key of 304 .*'domain' alone has 300"
    ):
        crawl.enqueue("a" * 300, 1)
    with pytest.raises(UsageError, match="'page' is None"):
        crawl.schedule("s", "* * * * *", "a")
    assert crawl.new_job(("a" * 296, 1), {}).keys == ("d:" + "a" * 296 + "/1",)


def test_a_plain_job_has_neither_keys_nor_a_lane(hf: Holdfast) -> None:
    @hf.task()
    async def plain() -> None: ...

    job = plain.new_job((), {})
    assert (plain.limits, job.keys, job.lane) == (None, None, 0)


# -- declarations


def test_a_template_names_only_what_there_is(hf: Holdfast) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"limit 'd:\{domian\}' of task 'crawl' names 'domian', which is no argument of it; it may name domain, "
        "tenant, queue, task",
    ):

        @hf.task(name="crawl", limits=[Limit("d:{domian}", concurrency=1)])
        async def crawl(domain: str) -> None: ...


def test_a_limit_of_whole_tenants_takes_no_argument_for_one(hf: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match="limits a whole tenant, but the task has an argument 'tenant'"):

        @hf.task(limits=[Limit("tenant:{tenant}", concurrency=1)])
        async def bill(tenant: str) -> None: ...


@pytest.mark.parametrize("limits", [Limit("a", concurrency=1), "smtp", ["smtp"], [Breaker()]])
def test_limits_are_a_list_of_limits(hf: Holdfast, limits: Any) -> None:
    with pytest.raises(ConfigurationError, match="limits are a list such as"):

        @hf.task(limits=limits)
        async def odd() -> None: ...


def test_no_task_has_more_limits_than_a_job_may_have(hf: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match="has 21 limits, more than the 20"):

        @hf.task(limits=[Limit(f"a{n}", concurrency=1) for n in range(21)])
        async def odd() -> None: ...


@pytest.mark.parametrize("second", ["host:{host}", "host:{name}"])
def test_tasks_that_share_keys_share_their_numbers(hf: Holdfast, second: str) -> None:
    hf.task(name="one", limits=[Limit("host:{host}", concurrency=2)])(_takes_host)
    with pytest.raises(ConfigurationError, match=r"tasks 'one' and 'two' declare limit .* with different values"):
        hf.task(name="two", limits=[Limit("x", concurrency=1), Limit(second, concurrency=3)])(_takes_host)
    assert list(hf.registry.tasks) == ["one"]
    assert hf.registry.limits == [Limit("host:{host}", concurrency=2)]
    hf.task(name="three", limits=[Limit(second, concurrency=2)])(_takes_host)
    assert hf.registry.limits == [Limit("host:{host}", concurrency=2)]


def test_which_errors_count_is_each_tasks_choice(hf: Holdfast) -> None:
    hf.task(name="one", limits=[Limit("smtp", breaker=Breaker(on=[OSError]))])(_takes_host)
    hf.task(name="two", limits=[Limit("smtp", breaker=Breaker(on=["X"]))])(_takes_host)
    assert len(hf.registry.limits) == 1


async def _takes_host(host: str, name: str) -> None: ...


# -- lanes


def test_lanes_are_the_documented_ones() -> None:
    assert limit.lane(None, None) == limit.lane(None, ()) == 0
    # sha256 of "acme" begins with 822b33ad87c148a0, that of "\x1fk" with 430907d441645106; the highest bit is dropped.
    assert limit.lane("acme", None) == 0x022B33AD_87C148A0
    assert limit.lane(None, ("k",)) == 0x430907D4_41645106
    assert limit.lane("acme", ("k",)) == 0x022B33AD_87C148A0 ^ 0x430907D4_41645106


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.randoms())
def test_the_order_of_keys_does_not_matter_to_a_lane(some: list[str], random: Any) -> None:
    some = [text.encode("utf-8", "replace").decode() for text in some]
    other = some[:]
    random.shuffle(other)
    assert limit.lane(None, tuple(some)) == limit.lane(None, tuple(other))


def test_a_job_whose_tenant_is_set_late_waits_in_that_tenants_lane() -> None:
    job = NewJob("", "t", b"{}")
    job.tenant = "acme"
    assert job.lane == limit.lane("acme", None)


# -- which errors count


class Refused(Exception):
    code = "HTTP_503"


def counts(
    task: Task[Any, Any], error: BaseException, payload: str = '{"domain":"a"}', tenant: str | None = None
) -> Any:
    row = ("", 1, task.name, payload, 1, 5, task.queue, 2, tenant, 0.0, None, None, 0, None, None)
    judge = Judge({task.name: task}, Settings.load(dsn="postgresql://nowhere/none"))
    return judge.failed(Job(row, Lease(1, 1, 0.0, 0.0)), error).counts


def test_breakers_count_the_errors_that_the_task_names(hf: Holdfast) -> None:
    limits = [
        Limit("domain:{domain}", breaker=Breaker(on=[ConnectionError, "HTTP_503"])),
        Limit("net", concurrency=5, breaker=Breaker()),
        Limit("mine:{tenant}", concurrency=5),
    ]

    @hf.task(name="crawl", limits=limits)
    async def crawl(domain: str) -> None: ...

    whole = ["queue:default", "task:crawl"]
    assert counts(crawl, ConnectionResetError()) == ["domain:a", "net", *whole]
    assert counts(crawl, Refused()) == ["domain:a", "net", *whole]
    assert counts(crawl, ValueError()) == ["net", *whole]
    assert counts(crawl, ValueError(), tenant="t") == ["net", "mine:t", *whole, "tenant:t"]


def test_a_key_counts_when_one_of_its_limits_does(hf: Holdfast) -> None:
    first, second = Limit("d:{a}", breaker=Breaker(on=[OSError])), Limit("d:{b}", breaker=Breaker(on=[ValueError]))

    @hf.task(name="copy", limits=[first, second, Limit("task:{task}", breaker=Breaker(on=[OSError]))])
    async def copy(a: str, b: str) -> None: ...

    assert counts(copy, ValueError(), '{"a":"x","b":"x"}') == ["d:x", "queue:default"]
    assert counts(copy, ValueError(), '{"a":"x","b":"y"}') == ["d:y", "queue:default"]
    assert counts(copy, OSError(), '{"a":"x","b":"y"}') == ["d:x", "task:copy", "queue:default"]


def test_nothing_is_reported_where_every_error_counts(hf: Holdfast) -> None:
    @hf.task(limits=[Limit("domain:{domain}", breaker=Breaker()), Limit("x", concurrency=1)])
    async def crawl(domain: str) -> None: ...

    assert counts(crawl, ValueError()) is None


def test_a_value_without_text_does_not_break_the_attempts_end(hf: Holdfast) -> None:
    class Odd(msgspec.Struct):
        def __str__(self) -> str:
            raise RuntimeError("broken")

    async def crawl(domain: Odd) -> None: ...

    crawl.__annotations__["domain"] = Odd
    task = hf.task(limits=[Limit("domain:{domain}", breaker=Breaker(on=[OSError]))])(crawl)
    assert counts(task, OSError(), '{"domain":{}}') is None
    assert counts(task, OSError(), "no JSON") is None
    with pytest.raises(RuntimeError, match="broken"):
        task.new_job((Odd(),), {})


@pytest.mark.parametrize(
    "numbers",
    [
        {"concurrency": 2_000_000_000},
        {"rate": 1e10},
        {"rate": 1e-9},
        {"rate": 1, "per": 1e-9},
        {"rate": 1, "burst": 1e10},
    ],
)
def test_numbers_that_the_database_could_not_count_with_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="got"):
        Limit("k", **numbers)


def test_the_burst_of_the_highest_rate_can_be_counted() -> None:
    assert Limit("k", rate=1e9, per=1e-6).as_json()["burst"] == 1e9


def test_an_order_has_one_place() -> None:
    assert Limit("order:{account}").as_json() == {"concurrency": 1}
    assert Limit("order:{account}", concurrency=1).concurrency == 1
    with pytest.raises(ConfigurationError, match="run one at a time: its concurrency must be 1, got 2"):
        Limit("order:{account}", concurrency=2)


@pytest.mark.parametrize("given", [{"rate": 5}, {"breaker": Breaker(after=3)}])
def test_an_order_has_no_rate_and_no_breaker(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="give them in a second limit"):
        Limit("order:{account}", **given)


def test_jobs_of_an_order_are_in_one_lane_whatever_their_other_limits() -> None:
    assert limit.lane("acme", ("order:a", "smtp")) == limit.lane("acme", ("order:a",))
    assert limit.lane("acme", ("order:a", "smtp")) != limit.lane("acme", ("order:b", "smtp"))


@pytest.mark.parametrize("key", ["order{n}", "or{n}", "o{n}:x"])
def test_no_value_makes_an_order_by_accident(key: str) -> None:
    with pytest.raises(ConfigurationError, match="could start with the reserved prefix 'order:'"):
        Limit(key, concurrency=2)
