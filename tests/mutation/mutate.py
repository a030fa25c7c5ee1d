"""How many small changes to production code the tests notice: `make mutate`."""

from __future__ import annotations

import queue
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from mutants import Mutant, sample
from trial import Bench, Outcome

from pipeline.testing import KafkaBroker

_ROOT = Path(__file__).parents[2]
_PLACES = ("checkpoint", "sinks", "sources", "pipeline/runtime")


@click.command()
@click.option("--mutants", "size", default=200, show_default=True, help="How many are tried.")
@click.option("--seed", type=int, help="Repeats a sample. It is printed.")
@click.option("--skip", default=0, help="How many of the sample an earlier run has tried.")
@click.option("--only", "places", multiple=True, help="A folder or file to change; several are possible.")
@click.option("--workers", default=2, show_default=True, help="How many are tried at once.")
@click.option("--at-least", default=0.9, show_default=True, help="The share caught that is asked for.")
def main(size: int, seed: int | None, skip: int, places: tuple[str, ...], workers: int, at_least: float) -> None:
    """Change production code in small ways, one at a time, and see whether a test fails: those of the module, those
    that name it, the simulation, and those of its folder. Tests that run Spark jobs are left out."""
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through `finally`: the tests that run end, too
    drawn = sample(_ROOT, list(places or _PLACES), size, seed)[skip:]
    with KafkaBroker.start(kind="native") as broker, _benches(workers, broker.bootstrap_servers, seed) as benches:
        outcomes = list(_try_all(drawn, benches))
        left_out = sorted(set().union(*(bench.left_out for bench in benches)))
    survivors = [outcome for outcome in outcomes if not outcome.caught_by]
    for outcome in sorted(survivors, key=str):
        print(f"\nSURVIVES {outcome.mutant}\n{outcome.diff}")
    if left_out:
        print("\nLeft out, since they fail without a change, too:", *left_out, sep="\n")
    print()
    for place, (caught, tried) in _by_place(outcomes).items():
        print(f"{place}: {caught} of {tried} caught")
    caught = len(outcomes) - len(survivors)
    print(f"{caught} of {len(outcomes)} caught ({caught / len(outcomes):.1%}), seed {seed}")
    sys.exit(caught < at_least * len(outcomes))


@contextmanager
def _benches(count: int, bootstrap: str, seed: int) -> Iterator[list[Bench]]:
    # With and without a change the tests draw the same. What a change lets wait for ever mustn't take minutes.
    environment = {
        "WEIR_KAFKA_BOOTSTRAP": bootstrap,
        "WEIR_STRESS_SEED": str(seed),
        "WEIR_TEST_PATIENCE": "100",
        # Of tests with a broker, and of long tables, other runs take a part.
        "PYTEST_ADDOPTS": "--sample 1",
    }
    with tempfile.TemporaryDirectory(prefix="weir-mutate-") as folder:
        benches = [Bench(_ROOT, Path(folder, str(index)), environment) for index in range(count)]
        try:
            yield benches
        finally:
            for bench in benches:
                bench.close()


def _try_all(mutants: list[Mutant], benches: list[Bench]) -> Iterator[Outcome]:
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)

    def work(bench: Bench) -> None:
        while True:
            try:
                done.put(bench.try_out(waiting.get_nowait()))
            except queue.Empty:
                return
            except BaseException as error:
                done.put(error)
                return

    for bench in benches:
        threading.Thread(target=work, args=(bench,), daemon=True).start()
    for number in range(1, len(mutants) + 1):
        outcome = done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        verdict = f"caught by {outcome.caught_by}" if outcome.caught_by else f"SURVIVES\n{outcome.diff}"
        print(f"{number}/{len(mutants)} {outcome.seconds:.0f} s {outcome.mutant}: {verdict}", flush=True)
        yield outcome


def _by_place(outcomes: list[Outcome]) -> dict[str, tuple[int, int]]:
    place = {outcome.mutant: str(Path(outcome.mutant.module).parent) for outcome in outcomes}
    tried = Counter(place[outcome.mutant] for outcome in outcomes)
    caught = Counter(place[outcome.mutant] for outcome in outcomes if outcome.caught_by)
    return {each: (caught[each], tried[each]) for each in sorted(tried)}


if __name__ == "__main__":
    main()
