"""A distilled scorer and its ensemble, as tables of text."""

from raydebm.evaluation.report.table_cells import Table, number, with_interval
from raydebm.evaluation.report.variant_tables import variant_tables
from raydebm.evaluation.studies.distillation import DistillationStudy


def distillation_tables(found: DistillationStudy) -> list[Table]:
    """What distillation costs and saves, then both scorers side by side."""
    return [_agreement_table(found), *variant_tables(found.variants)]


def distillation_summary(found: DistillationStudy) -> str:
    """One paragraph that follows from the numbers alone."""
    ensemble, student = found.variants.rows
    return (
        f"One forward pass in place of {ensemble.num_adapters}: {found.time.speedup:.1f} times as fast on "
        f"{found.time.num_texts} texts. The student chooses the ensemble's answer on "
        f"{with_interval(found.same_choice)} % of {found.same_choice.n} test problems; pass@1 by mu alone is "
        f"{with_interval(student.by_mu)} %, the ensemble's {with_interval(ensemble.by_mu)} %."
    )


def _agreement_table(found: DistillationStudy) -> Table:
    time, texts = found.time, f"{found.time.num_texts} texts"
    rows = (
        ("rank correlation of mu within problems", number(found.mu_rank, digits=2), str(found.mu_rank.n)),
        ("rank correlation of sigma within problems", number(found.sigma_rank, digits=2), str(found.sigma_rank.n)),
        ("same answer chosen by mu, %", with_interval(found.same_choice), str(found.same_choice.n)),
        (
            "right before wrong within a problem, ensemble, %",
            with_interval(found.ensemble_auroc),
            str(found.ensemble_auroc.n),
        ),
        ("the same, student, %", with_interval(found.student_auroc), str(found.student_auroc.n)),
        (
            "seconds per 1,000 texts, ensemble",
            f"{1000 * time.ensemble_s / time.num_texts:.1f}",
            texts,
        ),
        ("the same, student", f"{1000 * time.student_s / time.num_texts:.1f}", texts),
    )
    return Table(
        title="What distillation costs and saves",
        caption="Over the test problems' first-pass candidates, with 95 % intervals over problems. For the times both "
        "scorers read the same texts, one after the other in one process.",
        headers=("what", "value", "n"),
        rows=rows,
    )
