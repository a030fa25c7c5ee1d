"""The manifests are what Kubernetes takes, and agree with Weir and with one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from pipeline.http.guard import PROBES
from pipeline.settings import from_environment

FILE: Final = Path(__file__).parents[2] / "docker/kubernetes/orders.yaml"
DOCUMENTS: Final[dict[str, Any]] = {one["kind"]: one for one in yaml.safe_load_all(FILE.read_text())}
POD: Final[dict[str, Any]] = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]
JOB: Final[dict[str, Any]] = POD["containers"][0]


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_takes_them(version: str, kind: str) -> None:
    kubernetes_validate.validate(DOCUMENTS[kind], version, strict=True)


def test_the_probes_the_port_and_the_service_are_of_one_server() -> None:
    probes = [JOB[f"{name}Probe"]["httpGet"] for name in ("readiness", "liveness", "startup")]
    assert {probe["path"] for probe in probes} == set(PROBES)
    (port,) = JOB["ports"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    assert DOCUMENTS["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    variables = {one["name"]: one.get("value") for one in JOB["env"]}
    assert variables["WEIR_HTTP"] == f"0.0.0.0:{port['containerPort']}"
    assert variables["WEIR_HTTP_TOKEN"] is None, "a secret stands in no manifest"


def test_variables_are_known_and_checkpoints_lie_on_the_volume() -> None:
    variables = {one["name"]: one.get("value", "x" * 32) for one in JOB["env"]}
    assert set(from_environment(variables).given) == {"checkpoints.uri", "http"}
    (folder,) = [one["mountPath"] for one in JOB["volumeMounts"] if one["name"] == "checkpoints"]
    assert variables["WEIR_CHECKPOINTS_URI"].startswith(f"file://{folder}/")


def test_one_pod_runs_at_a_time_and_has_time_for_its_last_checkpoint() -> None:
    spec = DOCUMENTS["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    assert POD["terminationGracePeriodSeconds"] > 30


def test_the_pod_runs_as_the_user_of_the_image() -> None:
    dockerfile = (FILE.parents[1] / "weir/Dockerfile").read_text()
    assert f"useradd --uid {POD['securityContext']['runAsUser']} " in dockerfile


def test_the_pod_keeps_the_restricted_standard_of_pod_security() -> None:
    pod, container = POD["securityContext"], JOB["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & POD.keys()
    kinds = {kind for volume in POD["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "persistentVolumeClaim", "emptyDir", "secret", "projected"}
    assert POD["automountServiceAccountToken"] is False, "a job asks nothing of Kubernetes"


def test_page_and_metrics_are_reached_while_the_job_is_not_ready() -> None:
    assert DOCUMENTS["Service"]["spec"]["publishNotReadyAddresses"] is True
