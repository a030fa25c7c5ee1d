"""Whose handlers of SIGINT and SIGTERM are in force while jobs run, in processes without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest
from deadlines import PATIENCE


def said(code: str) -> str:
    """What a script without Spark prints."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


PRELUDE = """
import os, signal, threading, time
from pipeline.runtime.driver.interruptible import await_answer, await_event
from pipeline.runtime.driver.signals import Watched, signals

class Master:
    stopped, status = False, "finished"
    def __init__(self): self.ended = threading.Event()
    def request_checkpoint(self, request, answer):
        print("stop"); answer(1); self.ended.set()
    def cancel(self): print("cancel"); self.ended.set()

def wait(master):
    job = Watched("job", master, 30)
    signals.watch(job)
    with signals.waiting():
        ready.set()
        await_event(master.ended)
    signals.forget(job)

ready = threading.Event()
"""
KILL = "threading.Thread(target=lambda: (ready.wait(), os.kill(os.getpid(), signal.SIGTERM))).start()\n"


def test_python_s_own_handlers_are_back_once_no_job_runs() -> None:
    code = "before = [signal.getsignal(n) for n in (2, 15)]\n" + KILL + "wait(Master())\n"
    assert said(code + "print([signal.getsignal(n) for n in (2, 15)] == before)") == "stop\nTrue\n"


@pytest.mark.parametrize(
    "waits", ["await_event(m.ended)", "await_answer(answers)", "JobHandle(m, Watched('job', m, 30)).wait()"]
)
def test_a_signal_that_did_not_interrupt_the_wait_is_handled(waits: str) -> None:
    """As one does that comes just before Python blocks; here since another thread gets it."""
    code = """
import queue
from pipeline.handle import JobHandle
m, answers, blocks = Master(), queue.SimpleQueue(), threading.Event()
signal.signal(15, lambda *_: (print("handled"), m.ended.set(), answers.put(1)))
threading.Thread(target=lambda: (blocks.wait(), time.sleep(0.05), os.kill(os.getpid(), 15))).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {15})
blocks.set()
"""
    assert said(code + waits) == "handled\n"


def test_signals_at_the_end_of_the_process_are_handled_one_after_another() -> None:
    """However fast they come: the handler itself does nothing that takes long."""
    code = """
import atexit
from pipeline.runtime.driver.spark import gateway
killed = []
def kill(wait):
    time.sleep(0.01)
    killed.append(threading.current_thread().name)
gateway.kill = kill
m = Master()
def burst():
    for _ in range(3000):
        os.kill(os.getpid(), 15)
    while len(killed) < 10: time.sleep(0.01)
    print(set(killed))
atexit.register(burst)
m.ended.set()
wait(m)
"""
    assert said(code) == "{'weir-signals'}\n"


def test_a_handler_of_the_users_stays() -> None:
    code = "m = Master()\nsignal.signal(15, lambda *_: (print('mine'), m.ended.set()))\n" + KILL + "wait(m)\n"
    assert said(code) == "mine\n"


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    code = "signal.signal(2, signal.SIG_IGN)\nm = Master()\nthreading.Timer(0.2, m.ended.set).start()\n"
    code += "threading.Thread(target=lambda: (ready.wait(), os.kill(os.getpid(), 2))).start()\nwait(m)\n"
    assert said(code) == ""


def test_a_fork_has_none_of_the_jobs() -> None:
    code = """
m = Master()
signals.watch(Watched("job", m, 30))
with signals.waiting():
    if not (child := os.fork()):
        os.kill(os.getpid(), 15)
        time.sleep(60)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
m.ended.set()
"""
    assert said(code) == "15\n"


def test_a_job_that_has_ended_is_kept_by_nobody() -> None:
    code = """
import gc, weakref
m = Master()
threading.Timer(0.2, m.ended.set).start()
wait(m)
seen = weakref.ref(m)
del m
gc.collect()
print(seen())
"""
    assert said(code) == "None\n"


def test_nobody_goes_on_once_a_third_signal_ends_the_process() -> None:
    """Without Spark's JVM, which ends first, every job fails."""
    code = """
import types
from pipeline.runtime.driver.spark import gateway

class Stubborn(Master):
    history = types.SimpleNamespace(rows=list)
    def request_checkpoint(self, request, answer): print("stop", flush=True)
    def cancel(self): print("cancel", flush=True)

def kill():
    m.ended.set()
    time.sleep(1)

gateway.kill = kill
m = Stubborn()
threading.Thread(target=lambda: [time.sleep(0.6) or os.kill(os.getpid(), 15) for _ in range(3)], daemon=True).start()
wait(m)
print("went on", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (143, "stop\ncancel\n")


def test_a_stop_that_is_refused_is_tried_again() -> None:
    code = """
class Refusing(Master):
    asked = 0
    def request_checkpoint(self, request, answer):
        self.asked += 1
        print("stop", request.stop, flush=True)
        if self.asked == 1:
            answer(RuntimeError("disk full"))
        else:
            answer(3)
            self.ended.set()

"""
    assert said(code + KILL + "wait(Refusing())\n") == "stop True\nstop True\n"


def test_a_signal_while_nobody_waits_is_pythons_own() -> None:
    code = """
signal.signal(2, signal.default_int_handler)  # a shell's background job has it ignored
job = Watched("job", Master(), 30)
signals.watch(job)
try:
    os.kill(os.getpid(), 2)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
try:
    os.kill(os.getpid(), 15)
    time.sleep(5)
except SystemExit as end:
    print("exit", end.code)
job._master.ended.set()
"""
    assert said(code) == "interrupted\nexit 143\n"


def test_jobs_that_run_at_the_end_of_the_script_are_stopped_and_awaited() -> None:
    code = """
class Slow(Master):
    def request_checkpoint(self, request, answer):
        print("stop", flush=True)
        answer(1)
        end = threading.Timer(0.3, lambda: (os.write(1, b"ended\\n"), self.ended.set()))  # in one piece
        end.daemon = True
        end.start()

for job in (Slow(), Slow()):
    signals.watch(Watched("job", job, 30))
done = Master()
done.ended.set()
signals.watch(Watched("done", done, 30))
print("script over", flush=True)
"""
    lines = said(code).splitlines()
    assert lines[0] == "script over"
    assert sorted(lines[1:]) == ["ended", "ended", "stop", "stop"]


def test_a_job_that_does_not_end_in_its_time_is_cancelled() -> None:
    code = """
import types

class Deaf(Master):
    history = types.SimpleNamespace(rows=list)
    def request_checkpoint(self, request, answer): print("stop", flush=True)

m = Deaf()
job = Watched("job", m, 0.5)
signals.watch(job)
with signals.waiting():
    os.kill(os.getpid(), 15)
    while not m.ended.wait(0.05): pass
signals.forget(job)
"""
    assert said(code) == "stop\ncancel\n"


def test_ctrl_c_in_the_middle_of_a_start_leaves_no_job_to_wait_for() -> None:
    """It comes as an exception, wherever the main thread is."""
    code = (
        """
from pipeline import Pipeline
from pipeline.testing import TestingSink, TestingSource

p = Pipeline("job", stop_grace=1000)
p.source("in", TestingSource([])).sink("out", TestingSink())
start = threading.Thread.start
def interrupted(thread):
    if thread.name == "weir-signals":
        threading.Thread.start = start
        raise KeyboardInterrupt
    start(thread)
threading.Thread.start = interrupted
try:
    p.start()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
        + KILL
        + "wait(Master())\n"
    )
    assert said(code) == "interrupted\nstop\n"
