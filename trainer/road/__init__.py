"""Roads: one seed through the stages of a recipe."""

from trainer.road.bank import RoadBank as RoadBank
