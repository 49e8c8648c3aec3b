"""Bodies of ``GET /v1/live``: what one ingress replica saw lately. Counts and histograms of several can be added up."""

from datetime import datetime

from pydantic import BaseModel

from raydebm.decision.guarantee.drift import Figure

BIN_S = 10


class Bars(BaseModel):
    """A sparse histogram. A value v is counted at floor(v / width), or at floor(20 log10(v)) when width is null."""

    width: float | None
    counts: dict[int, int]


class RouteFigures(BaseModel):
    route: str
    statuses: dict[str, int]
    milliseconds: Bars
    p50_ms: float | None
    """Medians and percentiles are read from the bars: 6 % off at most."""
    p95_ms: float | None


class StageFigures(BaseModel):
    stage: str
    requests: int
    milliseconds: Bars
    p50_ms: float | None
    p95_ms: float | None


class GeneratorFigures(BaseModel):
    generator: str
    written: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float


class DriftFigures(BaseModel):
    """One figure of one generator of a task's run, compared with the calibration problems."""

    task: str
    generator: str
    figure: Figure
    num: int
    """Decisions that counted."""
    reference_mean: float
    """Over the calibration problems."""
    mean: float
    """Over the decisions that counted."""
    evidence: float
    """Decimal logarithm of the bet that it has changed."""
    alarmed_at: int | None
    """After how many decisions there was an alarm; null: there was none."""


class LiveBin(BaseModel):
    """Ten seconds."""

    at: int
    """Seconds since 1970 of its beginning; a multiple of 10."""
    requests: int
    server_errors: int
    """Answers with 500 and above."""
    refused: int
    """Answers with 400 to 498."""
    undecided: int
    """Triages that failed with 500 or above, also in streams and batches, which are answered 200."""
    accepted: int
    abstained: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    running: int
    """The most requests that were worked on at once."""
    waiting: int
    """The most requests that waited for a place."""


class WriterFigures(BaseModel):
    """What this replica's decision writer did since it started."""

    written: int
    dropped: int
    waiting: int
    last_error: str | None


class LiveFigures(BaseModel):
    """What one ingress replica saw in a window that ends now. Requests for pages and for this are not counted."""

    replica: str
    """A random name of the replica that answered; others have seen other requests."""
    started: datetime
    now: datetime
    window_s: int
    bin_s: int = BIN_S
    running: int
    """Requests that are worked on now."""
    waiting: int
    bins: list[LiveBin]
    """Oldest first; bins in which nothing happened are left out."""
    routes: list[RouteFigures]
    stages: list[StageFigures]
    """Time in each kind of call per decision, summed over passes; ``total`` is the whole decision."""
    sigma_accept: Bars
    """Histogram over selected candidates."""
    sigma_abstain: Bars
    energy_accept: Bars
    energy_abstain: Bars
    passes: dict[str, int]
    """Decisions by how many passes they took."""
    violations: dict[str, int]
    """Violations of selected candidates, by constraint."""
    generators: list[GeneratorFigures]
    drift: list[DriftFigures]
    """Generators compared with their calibration, since this replica started; the strongest evidence of a change
    first."""
    writer: WriterFigures | None
    """Null where decisions are not stored."""
