"""What goes on in a job, in sentences: made from its status, by rules that look at one kind of thing each. Pure."""

from __future__ import annotations

from pipeline.diagnosis.diagnose import diagnose
from pipeline.diagnosis.sentence import Sentence

__all__ = ["Sentence", "diagnose"]
