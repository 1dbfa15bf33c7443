"""Roads: one seed through several trainings, each of a smaller net than the one before."""

from trainer.road.bank import RoadBank as RoadBank
from trainer.road.stages import Into as Into
from trainer.road.stages import Keep as Keep
from trainer.road.stages import Road as Road
from trainer.road.stages import Stage as Stage
