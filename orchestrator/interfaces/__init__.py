"""Every seam. The parts of the middle layer meet only here and in ``records``.

Each Protocol says what it may raise; nothing else may come out of it. All of them are async; the command line is the sync edge.

``storage``  blobs, markers, bundles
``sandbox``  sandboxes, what they are made from, images
``gateway``  the gateway, agents as programs, the grader, trajectories
``pool``     whoever runs trials, and who hears of it
"""

from orchestrator.interfaces.gateway import (
    AgentProgram,
    ClosedTrajectory,
    Delivery,
    Gateway,
    Grader,
    LaunchRequest,
    Registration,
    ResumedTrajectory,
    Trajectory,
    TrajectoryFactory,
    WrittenTrajectory,
)
from orchestrator.interfaces.pool import Allowance, Observer, Phase, PlannedTrial, TrialEnd, TrialPool
from orchestrator.interfaces.sandbox import (
    BundledInput,
    BundleRef,
    Door,
    Ending,
    FolderSink,
    Frozen,
    ImageEngine,
    Input,
    LocalImage,
    PodDoor,
    PodSink,
    RelaySink,
    Sandbox,
    SandboxBackend,
    SandboxLimits,
    SandboxSpec,
    StopReason,
)
from orchestrator.interfaces.storage import (
    BundleSource,
    LocalObjects,
    ObjectStore,
    Stored,
    SweepableStore,
    Sweeper,
    UnfinishedFiles,
)
from orchestrator.records.keys import Audience
from orchestrator.records.probe import ProbeResult
from orchestrator.records.termination import TerminationReason
from orchestrator.records.usage import Spending

__all__ = [
    "AgentProgram", "Allowance", "Audience", "BundleRef", "BundleSource", "BundledInput", "ClosedTrajectory", "Delivery", "Door",
    "Ending", "FolderSink", "Frozen", "Gateway", "Grader", "ImageEngine", "Input", "LaunchRequest", "LocalImage", "LocalObjects",
    "ObjectStore", "Observer", "Phase", "PlannedTrial", "PodDoor", "PodSink", "ProbeResult", "Registration", "RelaySink",
    "ResumedTrajectory", "Sandbox", "SandboxBackend", "SandboxLimits", "SandboxSpec", "Spending", "StopReason", "Stored",
    "SweepableStore", "Sweeper", "TerminationReason", "Trajectory", "TrajectoryFactory", "TrialEnd", "TrialPool", "UnfinishedFiles",
    "WrittenTrajectory",
]  # fmt: skip
