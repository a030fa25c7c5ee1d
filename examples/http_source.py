"""A source of one's own over HTTP: feeds of JSON records, each feed a split that one subtask polls.

    WEIR_EXAMPLE_FEEDS="http://localhost:8000/north http://localhost:8000/south" weir run examples/http_source.py

Needs tenacity besides: pip install tenacity.

`GET feed?after=17` answers with a JSON list of the next records behind id 17, `[]` if there are none now.

A request takes longer than `poll` may wait, so a thread fetches, and a bounded queue keeps it from running ahead. The
snapshot holds a cursor for each feed: the id of the last record that has left the source. What lies in the queue has
not, and is fetched again after a restart.
"""

import json
import os
import queue
import threading
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set

from pipeline import Pipeline
from sinks import PrintSink
from sources import END, Source, SourceReader


class HttpSource(Source):
    """
    Args:
        feeds: their URLs.
        interval: seconds until a feed that had nothing is asked again; `None` = a feed ends when it has nothing.
    """

    def __init__(self, feeds, interval=None):
        self.feeds = list(feeds)
        self.interval = interval
        self.bounded = interval is None

    def validate(self):
        for feed in self.feeds:
            try:
                urlopen(feed, timeout=10).close()
            except (OSError, ValueError) as error:
                # A server that is overloaded now may answer later.
                if not (isinstance(error, HTTPError) and is_transient(error)):
                    raise ValueError(f"the feed {feed!r} doesn't answer: {error}") from error

    def create_reader(self, ctx):
        return HttpReader(self, ctx)


def is_transient(error):
    if isinstance(error, HTTPError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, OSError | HTTPException)


class HttpReader(SourceReader):
    def __init__(self, source, ctx):
        # Every new subtask gets the cursors of all old ones; a feed is one subtask's.
        restored = {feed: after for state in ctx.restored or [] for feed, after in state.items()}
        feeds = source.feeds[ctx.subtask :: ctx.parallelism]
        self.cursors = {feed: restored.get(feed) for feed in feeds}
        self.polled = []
        self.page = []
        """Fetched, and not polled yet: pairs of feed and record."""
        self.ended = False
        self.paused = False
        self.fetcher = Fetcher(dict(self.cursors), source.interval)

    def poll(self, max_records, timeout):
        # Everything polled before has left the source.
        self.cursors.update((feed, record["id"]) for feed, record in self.polled)
        self.polled = []
        if self.paused:
            return None
        if self.ended:
            return END
        if not self.page:
            page = self.fetcher.take(timeout)
            if page is None:
                return None
            if page is END:
                self.ended = True
                return END
            self.page = page
        self.polled, self.page = self.page[:max_records], self.page[max_records:]
        return [record for _, record in self.polled]

    def snapshot(self, checkpoint_id, emitted):
        return {**self.cursors, **{feed: record["id"] for feed, record in self.polled[:emitted]}}

    def pause(self):
        self.paused = True
        self.fetcher.may_fetch.clear()

    def resume(self):
        self.paused = False
        self.fetcher.may_fetch.set()

    def close(self):
        self.fetcher.close()


class Fetcher:
    """Asks the feeds in turn, at most two pages ahead."""

    def __init__(self, cursors, interval):
        self.cursors = cursors
        self.interval = interval
        self.pages = queue.Queue(maxsize=2)
        self.may_fetch = threading.Event()
        self.may_fetch.set()
        self.closing = threading.Event()
        self.retrying = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_random_exponential(multiplier=0.05, max=5),
            stop=stop_after_attempt(8) | stop_when_event_set(self.closing),
            sleep=sleep_using_event(self.closing),
            reraise=True,
        )
        self.thread = threading.Thread(target=self.run, name="http-fetcher", daemon=True)
        self.thread.start()

    def take(self, timeout):
        """A page, END, or None if nothing came within `timeout` seconds; raises what fetching has raised."""
        try:
            page = self.pages.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(page, Exception):
            raise page
        return page

    def run(self):
        try:
            while self.cursors and not self.closing.is_set():
                if not self.ask_all() and self.interval is not None:
                    self.closing.wait(self.interval)
        except Exception as error:
            self.pages.put(error)
            return
        if self.interval is None:
            self.pages.put(END)

    def ask_all(self):
        """Whether any had something."""
        any_came = False
        for feed, after in list(self.cursors.items()):
            self.may_fetch.wait()
            if self.closing.is_set():
                break
            records = self.retrying(self.get, feed, after)
            if records:
                any_came = True
                self.cursors[feed] = records[-1]["id"]
                self.pages.put([(feed, record) for record in records])
            elif self.interval is None:
                del self.cursors[feed]
        return any_came

    def get(self, feed, after):
        url = feed if after is None else f"{feed}?{urlencode({'after': after})}"
        with urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def close(self):
        self.closing.set()
        self.may_fetch.set()
        # What the thread is putting now finds room, and so does END: then it sees that it is over.
        while True:
            try:
                self.pages.get_nowait()
            except queue.Empty:
                break
        self.thread.join()


p = Pipeline("http-feeds", parallelism=2)
(
    p.source("feeds", HttpSource(os.environ.get("WEIR_EXAMPLE_FEEDS", "http://localhost:8000/orders").split()))
    .map(lambda order: f"order {order['id']} from {order['feed']}")
    .sink("out", PrintSink())
)
