"""`PipelineHarness`: a pipeline without Spark, in one process. `harness.py` is what tests use."""
