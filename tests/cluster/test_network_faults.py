"""The network of a standalone cluster is cut: between its two workers, or around one of them. What is over soon costs
no restart; what lasts is noticed, though nothing closes a connection. Each worker is on a host of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_driver import DAEMON, Driver, Session
from hosts import Hosts, Unavailable
from spark_cluster import Daemon, SparkCluster

pytestmark = pytest.mark.slow

EXACT = {"lost": 0, "duplicated": 0, "corrupted": 0, "misnumbered": 0, "out_of_order": 0}
SHORT = 5.0
LONG = 60.0
"""Seconds; longer than it takes to notice."""


@dataclass
class Site:
    """A cluster, and the hosts of its workers `a` and `b`."""

    hosts: Hosts
    cluster: SparkCluster

    def add_worker(self, name: str) -> Daemon:
        host = self.hosts[name]
        return self.cluster.add_worker(prefix=host.prefix, host=host.address)


@pytest.fixture(scope="module")
def whole_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hosts") / "cluster"
    try:
        hosts = Hosts("a", "b", "spare")
    except Unavailable as reason:
        pytest.skip(str(reason))
    with hosts, SparkCluster(folder, workers=0, host=hosts.hub.address, prefix=hosts.hub.prefix) as cluster:
        site = Site(hosts, cluster)
        site.add_worker("a")
        site.add_worker("b")
        yield site


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    yield whole_site
    whole_site.hosts.heal()


def running(site: Site, tmp_path: Path, checkpoints: int, **session: Any) -> Driver:
    """A driver whose job has subtasks on both workers."""
    options = Session(parallelism=2, checkpoints=checkpoints, conf=dict(DAEMON), **session)
    driver = Driver(site.cluster, tmp_path, options)
    assert len({executor for _, executor in driver.placement().values()}) == 2
    return driver


def wait_in_vain(driver: Driver, seconds: float) -> None:
    """The network stays cut for so long, and meanwhile no checkpoint comes through."""
    time.sleep(1.0)  # what is on its way arrives
    before = driver.completed()
    time.sleep(seconds - 1.0)
    assert driver.completed() <= before + 1, "the network is not cut"


def assert_exact(job: dict[str, Any]) -> None:
    assert (job["status"], job["findings"]) == ("finished", EXACT), job


@pytest.mark.parametrize(
    "alignment", ["unaligned", *(pytest.param(each, marks=pytest.mark.full) for each in ("aligned", 0.05))]
)
def test_workers_that_do_not_reach_each_other_for_a_moment_go_on_without_a_restart(
    site: Site, tmp_path: Path, alignment: str | float
) -> None:
    with running(site, tmp_path, 30, checkpoint_options={"alignment": alignment}) as driver:
        site.hosts.part("a", "b")
        wait_in_vain(driver, SHORT)
        site.hosts.heal()
        job = driver.job()
    assert_exact(job)
    assert job["restarts"] == 0, job["failure"]


def test_a_worker_that_nobody_reaches_for_a_moment_goes_on_without_a_restart(site: Site, tmp_path: Path) -> None:
    with running(site, tmp_path, 30) as driver:
        site.hosts.cut_off("a")
        wait_in_vain(driver, SHORT)
        site.hosts.heal()
        job = driver.job()
    assert_exact(job)
    assert job["restarts"] == 0, job["failure"]


@pytest.mark.matrix
def test_workers_that_do_not_reach_each_other_for_long_lose_their_connections_and_the_job_goes_on(
    site: Site, tmp_path: Path
) -> None:
    with running(site, tmp_path, 60, timeout=280.0) as driver:
        site.hosts.part("a", "b")
        wait_in_vain(driver, LONG)
        site.hosts.heal()
        job = driver.job()
    assert_exact(job)
    assert job["restarts"] >= 1
    assert "lost the connection to subtask" in driver.log()


@pytest.mark.full
def test_a_worker_that_nobody_reaches_for_long_is_given_up_and_the_job_goes_on(site: Site, tmp_path: Path) -> None:
    with running(site, tmp_path, 60, timeout=280.0) as driver:
        site.hosts.cut_off("a")
        wait_in_vain(driver, LONG)
        site.hosts.heal()
        job = driver.job()
    assert_exact(job)
    assert job["restarts"] >= 1


@pytest.mark.full
def test_a_host_that_vanishes_for_good_is_replaced_by_another(site: Site, tmp_path: Path) -> None:
    with running(site, tmp_path, 60, timeout=280.0) as driver:
        site.hosts.cut_off("a")
        spare = site.add_worker("spare")
        try:
            job = driver.job()
        finally:
            site.hosts.heal()
            site.cluster.remove_worker(spare)
    assert_exact(job)
    assert job["restarts"] >= 1
    assert "answers nothing any more" in driver.log() or "lost the connection to subtask" in driver.log()
