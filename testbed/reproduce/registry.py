"""The figures, tables and studies by name: a new one is a file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.harness.figure import Figure
from testbed.reproduce import (
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    flows5000,
    sensitivity,
    srtm,
    table1,
    table2,
    thesis,
)
from testbed.studies import (
    any_traffic,
    daemons,
    fabrics,
    phantom_queues,
    random_fleets,
    responsiveness,
    scale,
    thrift,
    trust,
)

FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        fig3.FIGURE,
        fig4.FIGURE,
        fig5.FIGURE,
        sensitivity.FIGURE,
        fig6.FIGURE,
        table1.FIGURE,
        fig7.FIGURE,
        table2.FIGURE,
        flows5000.FIGURE,
        fig8.FIGURE,
        scale.FIGURE,
        fabrics.FIGURE,
        thrift.FIGURE,
        fig9.FIGURE,
        responsiveness.FIGURE,
        trust.FIGURE,
        any_traffic.FIGURE,
        phantom_queues.FIGURE,
        random_fleets.FIGURE,
        *daemons.FIGURES,
        *thesis.FIGURES,
        *srtm.FIGURES,
    )
}
"""All figures by name, in the order in which they run and are reported."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "thesis": tuple(figure.name for figure in thesis.FIGURES),
    "srtm": tuple(figure.name for figure in srtm.FIGURES),
}
"""Names that stand for several."""
