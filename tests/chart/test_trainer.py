"""Training in the cluster: off by default, once for the same values, with flags that the command knows."""

from typing import Any

import typer

from tests.chart.rendering import Manifest, render, render_mode
from tiphys_cli.train.commands import train_app


def job_of(values: Manifest) -> Manifest:
    (job,) = [item for item in render({"trainer": {"enabled": True, **values}}).of("Job") if "trainer" in item["metadata"]["name"]]
    return job


def test_nobody_trains_unless_asked() -> None:
    assert [item for item in render().objects if "trainer" in item["metadata"]["name"]] == []


def test_other_values_are_another_job_and_the_same_values_the_same() -> None:
    names = [job_of(values)["metadata"]["name"] for values in ({}, {}, {"seeds": "1"}, {"steps": 5})]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_the_job_calls_the_command_with_flags_it_knows() -> None:
    command: Any = typer.main.get_command(train_app)
    known = {option for parameter in command.commands["placement"].params for option in parameter.opts}
    container = job_of({"steps": 5})["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][:3] == ["tiphys", "train", "placement"]
    given = dict(flag.split("=", 1) for flag in container["command"][3:])
    assert set(given) <= known
    assert (given["--publish"], given["--namespace"], given["--steps"]) == ("faasrank-trained", "tiphys-system", "5")


def test_a_schedule_trains_again_and_never_twice_at_once() -> None:
    rendered = render_mode("trainer-schedule")
    spec = rendered.one("CronJob", "tiphys-trainer")["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("0 3 * * 0", "Forbid")
    assert not [item for item in rendered.of("Job") if "trainer" in item["metadata"]["name"]]


def test_of_scaling_it_goes_on_with_what_the_operator_serves_and_keeps_it() -> None:
    rendered = render_mode("trainer-scaling")
    pod = rendered.pod_specs()["tiphys-trainer"]
    (container,) = pod["containers"]
    command: Any = typer.main.get_command(train_app)
    known = {option for parameter in command.commands["scaling"].params for option in parameter.opts}
    given = dict(flag.split("=", 1) for flag in container["command"][3:])
    assert container["command"][:3] == ["tiphys", "train", "scaling"]
    assert set(given) <= known
    service = rendered.one("Service", "tiphys-operator")
    port = service["spec"]["ports"][0]["port"]
    assert given["--from-transitions"] == f"http://tiphys-operator.tiphys-system.svc:{port}"
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"] if mount["mountPath"] != "/tmp"}
    assert given["--token-file"].startswith(mounts["token"])
    assert given["--out"] == mounts["work"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["work"]["persistentVolumeClaim"] == {"claimName": "scaling-replay"}
    operator_token = next(v for v in rendered.pod_specs()["tiphys-operator"]["volumes"] if v["name"] == "token")
    assert volumes["token"] == operator_token


def test_of_scaling_it_reaches_the_operator_and_the_operator_lets_it_in() -> None:
    label = "app.kubernetes.io/component"

    def peers(mode: str, name: str, direction: str, side: str) -> set[str]:
        rules = render_mode(mode).one("NetworkPolicy", name)["spec"][direction]
        return {p["podSelector"]["matchLabels"][label] for rule in rules for p in rule.get(side, ()) if "podSelector" in p}

    assert "operator" in peers("trainer-scaling", "tiphys-trainer", "egress", "to")
    assert "trainer" in peers("trainer-scaling", "tiphys-operator", "ingress", "from")
    assert "trainer" not in peers("trainer", "tiphys-operator", "ingress", "from")


def test_the_trainer_reaches_the_api_server_and_nobody_reaches_it() -> None:
    policy = render_mode("trainer").one("NetworkPolicy", "tiphys-trainer")["spec"]
    assert policy["ingress"] == []
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 443, 6443, 8443}
