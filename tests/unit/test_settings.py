"""Settings: from code and from the environment, with errors that name what to change."""

from __future__ import annotations

import re

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.errors import HoldfastError
from holdfast.settings import PREFIX, Settings, misspelt, table


def test_the_defaults_are_the_documented_ones() -> None:
    settings = Settings.load({})
    assert (settings.lease, settings.renew, settings.poll, settings.schema) == (60, 20, 1, "holdfast")
    assert settings.queue_list == ["default"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("dsn", "postgresql:///jobs", "postgresql:///jobs"),
        ("lease", "300", 300.0),
        ("renew", "7.5", 7.5),
        ("concurrency", "8", 8),
        ("pooler", "yes", True),
        ("pooler", " ON ", True),
        ("pooler", "1", True),
        ("notify", "false", False),
        ("notify", "0", False),
        ("notify", "Off", False),
        ("schema", "jobs_2", "jobs_2"),
        ("max_payload", "10", 10),
    ],
)
def test_the_environment_sets_any_setting(name: str, text: str, value: object) -> None:
    found = getattr(Settings.load({PREFIX + name.upper(): text}), name)
    assert found == value
    assert type(found) is type(value)


def test_an_empty_variable_is_not_set() -> None:
    assert Settings.load({"HOLDFAST_LEASE": "", "HOLDFAST_SCHEMA": ""}) == Settings()


def test_code_comes_before_the_environment_and_none_means_not_given() -> None:
    environ = {"HOLDFAST_LEASE": "100", "HOLDFAST_SCHEMA": "env"}
    settings = Settings.load(environ, lease=200, schema=None)
    assert (settings.lease, settings.schema) == (200, "env")


def test_a_bad_variable_that_code_overrules_is_not_read() -> None:
    assert Settings.load({"HOLDFAST_LEASE": "soon"}, lease=200).lease == 200


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("LEASE", "soon", "float"),
        ("CONCURRENCY", "8.5", "int"),
        ("CONCURRENCY", "many", "int"),
        ("POOLER", "perhaps", "bool"),
        ("MAX_PAYLOAD", "1MB", "int"),
    ],
)
def test_a_bad_value_names_the_variable_and_the_value(name: str, text: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_{name} must be an? {kind}, got '{text}'"):
        Settings.load({f"HOLDFAST_{name}": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lease", "0"),
        ("lease", "-5"),
        ("renew", "0"),
        ("poll", "0"),
        ("concurrency", "0"),
        ("claim_size", "-1"),
        ("grace", "-1"),
        ("max_payload", "1"),
        ("max_depth", "0"),
        ("max_error", "99"),
        ("pool_size", "0"),
        ("child_processes", "-1"),
        ("process_memory", "-1"),
        ("process_max_jobs", "-1"),
        ("process_max_rss", "-1"),
    ],
)
def test_a_value_below_its_bound_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be at least .* got .*; set HOLDFAST_{name.upper()}"):
        Settings.load({PREFIX + name.upper(): text})


@pytest.mark.parametrize("name", ["lease", "poll", "call_timeout"])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_number_that_is_none_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_{name.upper()}"):
        Settings.load({PREFIX + name.upper(): text})


def test_renewal_takes_at_most_half_of_the_lease() -> None:
    assert Settings.load({}, lease=60, renew=30).renew == 30
    with pytest.raises(
        ConfigurationError,
        match=r"renew \(31 s\) must be at most half of lease \(60 s\).*HOLDFAST_RENEW.*HOLDFAST_LEASE",
    ):
        Settings.load({}, lease=60, renew=31)
    with pytest.raises(ConfigurationError, match="HOLDFAST_LEASE"):
        Settings.load({"HOLDFAST_LEASE": "39"})


@pytest.mark.parametrize(("lease", "renew"), [(60, 30), (300, 20), (600, 60), (60, 20)])
def test_the_documents_leases_can_be_expressed(lease: float, renew: float) -> None:
    assert Settings.load({}, lease=lease, renew=renew).lease == lease


@pytest.mark.parametrize("schema", ["", "Jobs", "1st", "a b", 'a"; drop', "a.b", "x" * 41, "über"])
def test_a_schema_name_that_needs_quoting_is_refused(schema: str) -> None:
    with pytest.raises(ConfigurationError, match=r"schema .* is not usable"):
        Settings(schema=schema)


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="no setting named 'leese'"):
        Settings.load({}, leese=5)
    with pytest.raises(ConfigurationError, match="no setting named 'leese'"):
        Holdfast(leese=5)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lease", "x", "a float"),
        ("lease", True, "a float"),
        ("concurrency", 2.5, "an int"),
        ("concurrency", "8", "an int"),
        ("pooler", 1, "a bool"),
        ("schema", 5, "a str"),
        ("log_level", 10, "a str"),
        ("queues", ["mail", 5], "a str or a list of names"),
        ("queues", {"mail"}, "a str or a list of names"),
    ],
)
def test_a_value_of_the_wrong_type_names_the_setting_the_value_and_what_is_expected(
    name: str, value: object, expected: str
) -> None:
    words = re.escape(f"{name} must be {expected}, got {value!r}")
    with pytest.raises(ConfigurationError, match=words):
        Holdfast(**{name: value})
    with pytest.raises(ConfigurationError, match=words):
        Settings.load({}).with_(**{name: value})


def test_code_may_give_queues_as_a_list() -> None:
    assert Holdfast(queues=["mail", "default"]).settings.queue_list == ["mail", "default"]
    assert Settings.load({}).with_(queues=("mail",)).queues == "mail"


def test_an_unknown_setting_for_a_tick_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="no setting named 'quues'"):
        Settings.load({}).with_(quues="mail")


def test_a_worker_s_name_cannot_break_the_notifications_that_name_it() -> None:
    assert Settings.load({"HOLDFAST_WORKER_NAME": "worker-1.eu_west"}).worker_name == "worker-1.eu_west"
    for name in ("two words", "x" * 61):
        with pytest.raises(ConfigurationError, match=r"worker_name .* is not usable"):
            Settings.load(worker_name=name)


def test_an_unknown_log_format_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="log_format must be 'console' or 'json', got 'xml'"):
        Settings.load({"HOLDFAST_LOG_FORMAT": "xml"})


@pytest.mark.parametrize("name", ["mail,eu", " mail", "mail ", "mail\t", "\nmail", "a/b"])
def test_a_queue_that_no_worker_could_be_given_is_refused_wherever_it_is_named(name: str) -> None:
    message = "must not contain a slash or a comma, nor start or end with a space, got " + re.escape(repr(name))
    hf = Holdfast()

    def send() -> None: ...

    with pytest.raises(ConfigurationError, match=message):
        Holdfast(queues=["default", name])
    with pytest.raises(HoldfastError, match=message):
        hf.task(queue=name)(send)
    with pytest.raises(HoldfastError, match=message):
        hf.task()(send).using(queue=name)


def test_queues_are_a_list_without_blanks_and_repeats() -> None:
    assert Settings.load({"HOLDFAST_QUEUES": " mail, default,,mail ,other"}).queue_list == ["mail", "default", "other"]


def test_with_changes_some_values_and_checks_them() -> None:
    settings = Settings.load({}).with_(lease=300, schema=None)
    assert (settings.lease, settings.schema) == (300, "holdfast")
    with pytest.raises(ConfigurationError):
        settings.with_(renew=200)


def test_the_real_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE", "123")
    assert Settings.load().lease == 123
    assert Holdfast("postgresql:///x").settings.lease == 123


def test_a_misspelt_setting_is_found() -> None:
    assert misspelt({"HOLDFAST_POL": "3", "HOLDFAST_CONCURENCY": "4", "HOLDFAST_LEASE": "60", "POL": "3"}) == {
        "HOLDFAST_POL": "HOLDFAST_POLL",
        "HOLDFAST_CONCURENCY": "HOLDFAST_CONCURRENCY",
    }
    others = ("DEBUG", "TEST_LONG", "TEST_DSNS", "IMAGE", "TOKEN", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP")
    assert misspelt({f"HOLDFAST_{name}": "1" for name in others} | {"HOLDFAST_METRIC_PORT": "tcp://10.0.0.1:80"}) == {}


def test_the_reference_table_has_every_setting() -> None:
    text = table()
    for name in Settings.__dataclass_fields__:
        assert f"| `{name}` | `HOLDFAST_{name.upper()}` |" in text


@pytest.mark.parametrize("name", ["health_port", "metrics_port"])
def test_a_port_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{name} must be a port up to 65535, got 70000; set HOLDFAST_{name.upper()}"
    ):
        Settings(**{name: 70_000})


@pytest.mark.parametrize("name", ["public", "information_schema", "pg_catalog", "pg_jobs"])
def test_a_schema_that_is_not_ours_alone_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"schema '{name}' is not usable: .*set HOLDFAST_SCHEMA"):
        Settings(schema=name)
