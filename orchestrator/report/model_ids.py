"""Which models really answered: the ids that came back from providers, beside the models that an agent asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.dataset.rows import TrialRow
from orchestrator.report.text import plural

MOST_SHOWN = 8


def about_models(rows: Iterable[TrialRow]) -> Iterator[str]:
    """Yield a sentence for each agent whose models came back under more ids than it has models: its trials are no samples of one thing."""
    by_agent: dict[str, list[TrialRow]] = {}
    for row in rows:
        if not row.is_imported:
            by_agent.setdefault(row.agent.name, []).append(row)
    for name, own in by_agent.items():
        seen = Counter(model for row in own if row.outcome for model in row.outcome.models)
        asked = set(own[0].agent.agent.models.values())
        if not asked or len(seen) <= len(asked):
            continue
        shown = ", ".join(f"{model} in {plural(count, 'trial')}" for model, count in sorted(seen.items())[:MOST_SHOWN])
        more = f", and {plural(len(seen) - MOST_SHOWN, 'other')}" if len(seen) > MOST_SHOWN else ""
        yield (
            f"agent {name}: {plural(len(seen), 'model id')} came back for {plural(len(asked), 'model')} "
            f"({shown}{more}); compare only trials that the same model answered"
        )
