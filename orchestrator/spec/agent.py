"""The agent file: a configuration under test. A score belongs to it, never to a model alone."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, StringConstraints, model_validator

from orchestrator.settings import Price
from orchestrator.spec.base import RelativePath, Spec
from orchestrator.spec.task import is_pinned

RUNNABLE_AGENTS = frozenset({"command", "http", "react", "scripted", "oracle", "nop", "human"})

Adapter = Literal["claude-code", "codex", "mini-swe-agent"]
"""Forms of an ending: the JSON result of Claude Code, the JSON events of Codex, the exit status of mini-swe-agent's trajectory."""

ModelId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+/\S+$")]
"""``provider/name``; the provider ``scripted`` plays conversations from files."""


def is_scripted(model: str) -> bool:
    """Return whether a model plays conversations from files: nobody has to be asked for it, and nobody charges for it."""
    return model.startswith("scripted/")


class Agent(Spec):
    """``manifests/agents/<name>.yaml``. The file's name is the agent's name."""

    type: Literal["command", "http", "react", "scripted", "oracle", "nop", "human"]
    """Who acts: a program, an endpoint, our small loop, the loop with scripted models, the task's own solution, nobody, a person."""
    version: str = ""
    """The author's own version word; part of the digest."""
    command: tuple[str, ...] = ()
    """Program and arguments, run in the task's workdir."""
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s#]*)?$", max_length=2000)] | None = None
    """Endpoint of an agent of type ``http``."""
    stdin: Literal["none", "instruction"] = "none"
    """What the program reads on its standard input."""
    bundle: RelativePath | None = None
    """Folder beside the agent file, laid read-only at ``/agent``; with ``build``, what its command starts from."""
    image: str | None = None
    """Pinned image that holds the agent, for ``placement: own`` and ``mounted``."""
    build: str | None = None
    """Shell command that makes the files of ``/agent`` in a copy of ``bundle``; ``orchestrate agents build`` runs it, once."""
    placement: Literal["sandbox", "own", "mounted"] = "sandbox"
    """In the sandbox of the task's image, or in one of the agent's own ``image``; the task's workspace is laid in either. ``mounted``: in
    that of the task's image, with the files of ``image`` read-only at ``/agent``."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables for the program. Not for secrets: keys stay at the gateway."""
    models: dict[str, ModelId] = Field(default_factory=dict)
    """Alias to ``provider/name``; the program may use only these."""
    prompt: RelativePath | None = None
    """File beside the agent file with the system prompt of ``react``."""
    params: dict[str, JsonValue] = Field(default_factory=dict)
    """Sampling parameters that ``react`` sends with each request."""
    scripts: RelativePath | None = None
    """Folder beside the agent file with one conversation file per task, for the provider ``scripted``."""
    prices: dict[ModelId, Price] = Field(default_factory=dict)
    """Prices by model; they win over every other table."""
    terminal_output: Literal["final_json", "none"] = "final_json"
    """``none``: the agent cannot decline or ask, so those tasks are not applicable to it."""
    adapter: Adapter | None = None
    """Which agent's own form of ending the program prints; read when it neither called ``finish`` nor wrote ``/output/final.json``."""
    tools: tuple[str, ...] = ()
    """Tools that ``react`` offers to the model beside the task's; all of its own when empty."""

    @model_validator(mode="after")
    def _complete(self) -> Agent:
        problems = []
        if self.type == "command" and not self.command:
            problems.append("type 'command' needs 'command'")
        if self.type == "react" and not self.models:
            problems.append("type 'react' needs 'models'")
        if self.type == "scripted" and not self.scripts:
            problems.append("type 'scripted' needs 'scripts'")
        if any(is_scripted(model) for model in self.models.values()) and not self.scripts:
            problems.append("a model of the provider 'scripted' needs 'scripts'")
        problems += self._placed()
        if (self.type == "http") != (self.url is not None):
            problems.append("type 'http' needs 'url', and no other type has one")
        if self.build is not None and not self.build.strip():
            problems.append("'build' is empty; name the command that makes the files of /agent")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def reaches(self) -> tuple[str, ...]:
        """The rules of hosts that a sandbox must reach for the agent to act, whatever its task lists."""
        if self.url is None:
            return ()
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return (f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}",)

    @property
    def system_image(self) -> str | None:
        """The image that the agent runs in instead of the task's."""
        return self.image if self.placement == "own" else None

    @property
    def mounted_image(self) -> str | None:
        """The image whose files are the agent's, in a sandbox of the task's image."""
        return self.image if self.placement == "mounted" else None

    def _placed(self) -> list[str]:
        """Find fault with image and placement, which need each other."""
        if self.image is None:
            return [] if self.placement == "sandbox" else [f"placement {self.placement!r} needs 'image'"]
        problems = []
        if self.placement == "sandbox":
            problems.append("'image' is for placement 'own' or 'mounted'; add one of them, or take 'image' out")
        if self.mounted_image is not None and (self.bundle is not None or self.build is not None):
            problems.append(
                "with placement 'mounted' the files of /agent are those of 'image'; take 'bundle' and 'build' out"
            )
        if not is_pinned(self.image):
            problems.append(
                f"image {self.image}: its tag can mean another image tomorrow; name it with @sha256:…, or by its id"
            )
        return problems
