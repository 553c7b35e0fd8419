"""Facts for pictures as plain data of bounded size, and their drawings: SVG, HTML and matplotlib."""

from virtualstack.drawing.facts import (
    STATES,
    ChunkMap,
    SourceFacts,
    StoredKind,
    Timeline,
    TimelineDuplicate,
    TimelineEra,
    TimelineGap,
)

__all__ = [
    "STATES",
    "ChunkMap",
    "SourceFacts",
    "StoredKind",
    "Timeline",
    "TimelineDuplicate",
    "TimelineEra",
    "TimelineGap",
]
