"""Roads: one seed through the stages of a recipe."""

from trainer.road.bank import RoadBank as RoadBank
from trainer.road.passed import Passed as Passed
from trainer.road.passed import passed as passed
