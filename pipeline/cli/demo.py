"""`weir demo`: real flights, a slow operator, a killed process, and a check of every record."""

from __future__ import annotations

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr


@click.command()
@click.option("--records", default=336_776, show_default=True, type=click.IntRange(min=1), help="How many flights.")
@click.option("--json", "as_json", is_flag=True, help="Result as one JSON object on the last line; progress to stderr.")
@click.option("--bootstrap", metavar="SERVERS", help="Use the Kafka there instead of starting one.")
@click.option("--parallelism", default=2, show_default=True, type=click.IntRange(1, 128))
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between checkpoints."
)
@click.option(
    "--slow",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.0),
    help="Seconds of the slow phase.",
)
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill a worker process on the way.")
@click.option("--keep-topics", is_flag=True, help="With --bootstrap: leave the demo's four topics.")
def demo(
    records: int,
    as_json: bool,
    bootstrap: str | None,
    parallelism: int,
    interval: float,
    slow: float,
    kill: bool,
    keep_topics: bool,
) -> None:
    """Run a job on real flights, from Kafka to Kafka, kill one of its processes, and check the output.

    It computes delays by carrier, running, and by hour beside the weather. At the end every output record is read back
    with read_committed and compared with a result computed directly; the exit status is 1 if anything was lost, doubled
    or wrong.
    """
    from rich.console import Console

    from pipeline.broker import BrokerFailed
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble
    from pipeline.demo.display import display_on
    from pipeline.demo.driver import Demo, DemoFailed, DemoOptions
    from pipeline.demo.flights import DataMissing, airlines

    log_to_stderr("ERROR")
    console = Console(stderr=as_json)
    options = DemoOptions(records, bootstrap, parallelism, interval, slow, kill, keep_topics)
    with ending_cleanly():
        try:
            with display_on(console) as display:
                run = Demo(options, display)
                report = run.run()
        except (BrokerFailed, DataMissing, DemoFailed, FetchFailed, JavaMissing, TimeoutError, TopicTrouble) as error:
            raise click.ClickException(str(error)) from error
        assert run.expected is not None
        assert run.expected_hours is not None
        report.print(console, run.expected.final, airlines(), run.expected_hours)
        if as_json:
            click.echo(report.to_json())
        if not report.ok:
            raise SystemExit(1)
