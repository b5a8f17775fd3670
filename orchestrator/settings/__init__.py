"""What this machine is told: flags, then ``ORCHESTRATE_*``, then ``orchestrate.toml`` here or in a parent, then
defaults.

``models`` and ``kubernetes`` have everything that can be set. ``load`` puts it together from ``read`` and ``check``; ``collected`` knows
where each value came from, ``toml`` in which line. ``environment`` is the only module that reads the environment. Importing this loads
pydantic and the standard library alone.
"""

from orchestrator.settings.environment import (
    build_variables,
    engine_variables,
    local_ray_variables,
    otlp_headers,
    ray_address,
    set_variables,
)
from orchestrator.settings.kubernetes import Kubernetes, RuntimeClasses, Toleration
from orchestrator.settings.load import load_settings, settings_of, usable_settings
from orchestrator.settings.models import (
    KNOWN_PROVIDERS,
    MOST_AT_ONE_TIME,
    KeyedProvider,
    ProviderEndpoint,
    ProviderType,
    Settings,
    SettingsFile,
)
from orchestrator.settings.price import Price, PriceTier

__all__ = [
    "KNOWN_PROVIDERS",
    "MOST_AT_ONE_TIME",
    "KeyedProvider",
    "Kubernetes",
    "Price",
    "PriceTier",
    "ProviderEndpoint",
    "ProviderType",
    "RuntimeClasses",
    "Settings",
    "SettingsFile",
    "Toleration",
    "build_variables",
    "engine_variables",
    "load_settings",
    "local_ray_variables",
    "otlp_headers",
    "ray_address",
    "set_variables",
    "settings_of",
    "usable_settings",
]
