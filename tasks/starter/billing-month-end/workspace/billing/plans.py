"""What can be subscribed to."""

from dataclasses import dataclass


class UnknownPlan(ValueError):
    """There is no such plan."""


@dataclass(frozen=True)
class Plan:
    """A billing period, in months."""

    name: str
    months: int


PLANS = {plan.name: plan for plan in (Plan("monthly", 1), Plan("quarterly", 3), Plan("yearly", 12))}


def plan(name):
    """Return the plan of that name. Raises UnknownPlan."""
    try:
        return PLANS[name]
    except KeyError:
        raise UnknownPlan(f"{name!r} is not one of {', '.join(sorted(PLANS))}") from None
