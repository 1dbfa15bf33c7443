"""Study files with something wrong, and what must be said of each."""

BEGIN = "name: x\nmodel: 57p\n"
GOOD = BEGIN + "seeds: [1]\n"
LISTED = GOOD + "configurations: [{}, {model: 57p}]\n"
SCALES = "name: x\nseeds: {first: 1, count: 4}\n"
RECYCLING = "{recycle_every: 1000, recycle_until: 20000, recycle_unless: [[switches, 0.9]]}"
RECYCLED = f"{SCALES}constraints: [rank1_out]\nscales: {{57p: {{rate: 0.5, recipe: {RECYCLING}, bases: {{%s}}}}}}"
SCREEN = "stop: {screen: {at: 5000, keep: {odd: 0.9}}}"
FADE = "space: {recipe.fade_end: {int: %s}}"
TIED_OR_NOT = "space: {model.tie_vo: {choice: [true, false]}, %s}"
WHEN_TIED = "when: {model.tie_vo: true}"
ONE_RATE = "space: {recipe.hold: {choice: [1, 2]}}\nsampler: {objectives: %s}"
# In both tables: YAML -> the error without its source, a * stands for anything.
LINES = {  # what is added to GOOD
    # Keys that are misspelt, missing or given twice
    "space: {recipe.lr: {flaot: [0.1, 0.2]}}": "space.recipe.lr.flaot: unknown key; did you mean float?",
    "? {a: 1}\n: 3": "line 4, column 3: not valid YAML (found unhashable key)",
    "'[key]': 1": "[key]: unknown key; valid: about, *",
    # The recipe: what else it cannot be is in unit/test_recipe.py
    "recipe: {lr: -1}": "recipe.lr: must be 0.0 or more, got -1",
    "recipe: {batch: 70000}": "recipe.batch: must be from 1 to 65536, got 70000",
    "recipe: {wd_period: 5}": "recipe: wd_period=5 needs wd_schedule=cyclical",
    "recipe: {wd_schedule: smooth}": "recipe: wd_schedule=smooth needs wd_drop below 1: *",
    "recipe: {init: [[fc3, normal, 1]]}": "recipe.init: must be about tensors *; did you mean fc1?",
    "recipe: {recycle_every: 2000, recycle_unless: [[swiches, 1]]}": "*unknown probe 'swiches'; did you mean swit*",
    "recipe: {again_at: 4000, again_unless: [[tokne, 1]]}": "*unknown probe 'tokne'; did you mean token?",
    "recipe: {again_at: 4000, again_unless: [[token]]}": "recipe.again_unless: must be pairs*",
    "recipe: [1]": "recipe: must be a mapping, got [1]",
    "space: {recipe.lr: [0.01, 0.03]}": "space.recipe.lr: must be a mapping, got *; for example {choice: [0.01, 0.03]}",
    # Seeds and when they end
    "resources: {seeds_per_trial: 010}": "*: not valid YAML (no int: 010; if it is text, quote it)",
    "until: {grokked: 1}": "until: grokked needs max_seeds: *",
    "stop: {screen: {att: 5000, keep: {}}}": "stop.screen.at: missing\nstop.screen.att: unknown key; did you mean at?",
    "stop: {screen: {at: 5000, keep: {tokn: 0.35}}}": "stop.screen.keep.tokn: unknown probe of 57p; did you mean *",
    f"toggle: [rank1_out]\n{SCREEN}":
        "stop.screen.keep.odd: unknown probe of 72 parameters (57p without rank1_out); valid: *",
    "stop: {screen: [{at: 5000, keep: {odd: 0.9}}, {at: 3000, keep: {}}]}":
        "stop: screen.1.at must be later than the rung before, got 3000 after 5000",
    # Resources and sampler
    "resources: {cpu: 1.5}": "resources.cpu: must be above 0 and at most 1, or a whole number, got 1.5",
    "resources: {gpu: 1.5}": "resources.gpu: must be from 0 to 1, or a whole number, or auto, got 1.5",
    "sampler: {name: tpee}": "sampler.name: must be 'tpe', 'nsga2', 'qmc', 'random' or 'grid', got 'tpee'",
    # The search space
    "space: {recipe.warmupp: {int: [1, 2]}}": "space.recipe.warmupp: unknown field; did you mean recipe.warmup*",
    "space: {model.family: {choice: [a]}}": "space.model.family: unknown field; did you mean *",
    "space: {recipe.lr: {}}": "space.recipe.lr: give exactly one of float, int, choice",
    "space: {recipe.lr: {float: [0.2, 0.1]}}": "space.recipe.lr: the first bound must be below the second, got *",
    "space: {model.qk_dim: {int: [2, 8], step: 2, log: true}}": "space.model.qk_dim: log goes with * not with step",
    "space: {recipe.lr: {float: [-1, 0.1]}}": "space.recipe.lr: must be 0.0 or more, got -1.0",
    "space: {recipe.hold: {int: [1, 5], step: 5}}": "space.recipe.hold: step must be at most the distance *, got 5",
    "space: {recipe.lr_factors: {choice: [[[norn, 3]]]}}": "space.recipe.lr_factors: must be of tensors of θ*",
    "space: {recipe.lr: {choice: [0.1, 0.2]}, recipe.hold: {choice: [-1]}}": "space.recipe.hold: must be *",
    FADE % "[0, 9], after: recipe.fade_strat": "space.recipe.fade_end.after: unknown field *; did you mean *",
    FADE % "[0, 9], after: recipe.curriculum": "space.recipe.fade_end.after: recipe.curriculum is not a number",
    FADE % "[0, 9], after: recipe.fade_end": "space.recipe.fade_end.after: depends on itself *",
    FADE % "[0, 2147483647], after: recipe.fade_start": "space.recipe.fade_end: must be *, got 2147498647",
    "space: {recipe.fade_end: {choice: [1, 2], after: recipe.fade_start}}": "*: after goes with float or int",
    "space: {recipe.warmup: {int: [1, 2], after: recipe.hold}, recipe.hold: {int: [1, 2], after: recipe.warmup}}":
        "space.recipe.warmup.after: depends on itself (recipe.warmup -> recipe.hold -> recipe.warmup)",
    "space: {recipe.lr: {choice: [1, 2]}, recipe.hold: {choice: [1, 2], when: {recipe.lr: 1, recipe.hold: 1}}}":
        "space.recipe.hold.when: depends on itself (recipe.hold -> recipe.hold)",
    TIED_OR_NOT % f"recipe.optimiser: {{choice: [adamw, lionn], {WHEN_TIED}}}":
        "space.recipe.optimiser: *unknown 'lionn'; did you mean lion?",
    "space: {recipe.optimiser: {choice: [adamw, lionn]}, "
    "recipe.hold: {choice: [1, 2], when: {recipe.optimiser: adamw}}, "
    "recipe.lr: {float: [0.1, 0.2], when: {recipe.optimiser: adamw}}}":
        "space.recipe.optimiser: *unknown 'lionn'; did you mean lion?",
    TIED_OR_NOT % f"recipe.optimiser: {{choice: [adamw, sgd], {WHEN_TIED}}}, "
    "recipe.lr: {float: [-0.1, 0.1], when: {recipe.optimiser: sgd}}": "space.recipe.lr: must be 0.0 or more, got -0.1",
    TIED_OR_NOT % f"recipe.hold: {{choice: [1, 2], {WHEN_TIED}}}, "
    "recipe.warmup: {int: [1, 2], when: {recipe.hold: 1, model.tie_vo: false}}":
        "space.recipe.warmup.when: can never hold: *",
    "space: {recipe.lr: {float: [0, 1]}}\nsampler: {name: grid}": "space.recipe.lr: a grid needs a step *",
    "space: {recipe.hold: {int: [0, 10000]}}\nsampler: {name: grid}": "space: a grid has at most 10000 points, *",
    ONE_RATE % "[params]": "sampler.objectives: must have one of grok_rate and per_*",
    ONE_RATE % "[grok_rate, per_million]": "sampler.objectives: must have one of grok_rate and per_*",
    # Names and texts
    "about: \"a\\nb\"": "about: must be one line of printable text",
    # What follows the first round
    "until: {grokked: 1, max_seeds: 4}\nallocation: {}": "allocation: * by until or by allocation, not both",
    "confirm: {seeds: {first: 7, cout: 1}}": "confirm.seeds.count: missing\nconfirm.seeds.cout: *; did you mean count?",
    "toggle: tie_vo": "toggle: must be a list, got 'tie_vo'; for example [tie_vo]",
    "program: train.py\nmethod: bayes": "program: unknown key; valid: about, *\nmethod: unknown key",
    "toggle: [tie_vq]": "toggle.0: unknown constraint 'tie_vq' of split_subspace; did you mean *",
    "toggle: [tie_vo, qk_dim=4]\nconfigurations: [{}, {model: 61p}]": "toggle.1: the model has qk_dim=2",
    "toggle: [tie_vo]\nspace: {recipe.lr: {float: [0.1, 0.2]}}": "toggle: * a list * or a space, not both",
    "combine: [tie_vo, qk_dim=3]": "combine.1: the model has qk_dim=4",
}  # fmt: skip
FILES = {
    # Keys that are misspelt, missing or given twice
    "name: x\nseeds: [1]": "model: missing",
    # The model
    "name: x\nmodel: 59p": "model: unknown preset '59p'; did you mean 58p or 61p?\n*seeds: missing",
    "name: x\nmodel: {preset: 59p}": "model: unknown preset '59p'; did you mean 58p or 61p?\n*seeds: missing",
    "name: x\nmodel: {family: rop}": "model: unknown family 'rop'; did you mean rope?\n*seeds: missing",
    "name: x\nmodel: {rung: 57p, qkdim: 3}\nseeds: [1]": "model: unknown constraint 'qkdim' *; did you mean qk_dim?",
    "name: x\nmodel: {rung: 57p, qk_dim: 1}\nseeds: [1]": "model: tie_qk excludes qk_dim=1: *",
    "name: x\nmodel: {rung: 57p, hidden: 8}\nseeds: [1]": "model: tie_fc2_head needs hidden=2",
    "name: x\nmodel: {rung: 67p, hidden: 8, one_unit: true}\nseeds: [1]": "model: one_unit needs hidden=2",
    "name: x\nmodel: {rung: 67p, hidden: 1}\nseeds: [1]": "model.hidden: must be from 2 to 16, got 1",
    "name: x\nmodel: 170p\nseeds: [1]\nrecipe: {recycle_every: 2000, recycle_unless: [[token, 0.5]]}":
        "*needs a model with the probe `switches`*",
    f"name: x\nmodel: {{preset: 67p, one_unit: true}}\nseeds: [1]\nrecipe: {RECYCLING}":
        "*needs a model with * and two hidden units*",
    "name: x\nmodel: 74p\nseeds: [1]\ncombine: [tie_vo, qk_dim=8]":
        "combine.1: qk_dim=8 takes no parameters away from this model",
    # Seeds and when they end
    BEGIN + "seeds: [4, 5, 4]": "seeds: a seed is listed twice",
    BEGIN + "seeds: [2147483648]": "seeds.0: must be less than or equal to 2147483647, got 2147483648",
    BEGIN + "seeds: {first: 2147483640, count: 9}": "seeds: seeds go up to 2147483647",
    BEGIN + "seeds: {first: 2147483640, count: 4}\nuntil: {grokked: 1, max_seeds: 64}":
        "until.max_seeds: the last round would pass the largest seed, 2147483647",
    BEGIN + "seeds: [1, 2]\nuntil: {grokked: 1, max_seeds: 1}": "until.max_seeds: must be at least *, got 1",
    f"name: x\nmodel: 456p\nseeds: [1]\n{SCREEN}":
        "stop.screen.keep.odd: unknown probe (456p has no probes); valid: exact, token",
    "name: x\nmodel: {base: 57p, ties: ['fc1[1,4] = -fc1[0,0]']}\nseeds: [1]\n"
    "recipe: {ramp_start: 40000, ramp: 10000}\nstop: {screen: {at: 26000, keep: {token: 0.5}}}":
        "stop.screen.at: must be at the ramp's end (50000) or later for exact and token, got 26000",
    # The table of constraints
    SCALES + "scales: {57p: {rate: 0.5}}": "constraints: missing, and the study has scales",
    SCALES + "constraints: [tie_vo]\nscales: {59p: {rate: 0.5}}": "scales.59p: unknown preset '59p'; did you mean *",
    SCALES + "constraints: [tie_vo]\nscales: {57p: {}}": "scales.57p.rate: missing",
    SCALES + "constraints: [qk_dim=4]\nscales: {170p: {rate: 0.5}}":
        "constraints.0: cannot be toggled at any scale; at 170p: it would take no parameter away",
    SCALES + "constraints: [qk_dim=4]\nscales: {57p: {rate: 0.5}, 170p: {rate: 0.5}}":
        "scales.170p: none of the constraints can be toggled here",
    f"{SCALES}constraints: [rank1_out]\nscales: {{57p: {{rate: 0.5}}}}\n{SCREEN}":
        "stop.screen.keep.odd: unknown probe of 72 parameters (57p without rank1_out); valid: *",
    SCALES + "model: 57p\nconstraints: [tie_vo]\nscales: {57p: {rate: 0.5}}": "model: does not go with scales: *",
    "name: x\nseeds: [1, 2]\nconstraints: [tie_vo]\nscales: {57p: {rate: 0.5, seeds: 3}}":
        "scales.57p.seeds: counts from seeds.first, and the study's seeds have none",
    RECYCLED % "": "scales.57p: with rank1_out toggled: *; give rank1_out a base of its own in scales.57p.bases",
    RECYCLED % "b: {constraints: [rank1_out], recipe: {lr: 0.1}}":
        "scales.57p.bases.b.recipe: with rank1_out toggled: recycle_every needs *",
    RECYCLED % "b: {constraints: [tie_vo], recipe: {lr: 0.1}}":
        "scales.57p.bases.b.constraints.0: tie_vo is none of the study's constraints",
    RECYCLED % "b: {constraints: [rank1_out], recipe: {recycle_every: 1000}}":
        "scales.57p.bases.b.recipe: trains what another base of this scale does",
    RECYCLED % "'': {constraints: [rank1_out], recipe: {lr: 0.1}}": "scales.57p.bases: each needs a name",
    # Names and texts
    "name: x\nmodel: 57p\nseeds: 8": "seeds: must be a mapping or a list, got 8; for example {first: 1, count: 8}",
    "name: x\nmodel: 57\nseeds: [1]": "model: must be *, got 57; for example 57p",
    "name: ../../x\nmodel: 57p\nseeds: [1]":
        "name: must be up to 64 letters (a to z), digits, dots, dashes or underscores, and begin with *, got '../../x'",
    "name: x\nmodel: 57p\nseeds: [1]\nlr: 0.1": "lr: unknown key; did you mean recipe.lr?",
    "name: Default\nmodel: 57p\nseeds: [1]": "name: Default is MLflow's own experiment, choose another name",
    # What follows the first round
    BEGIN + "seeds: {init: [1], data: [2]}\nallocation: {most: 9}": "allocation.most: crossed seeds have no next ones",
    BEGIN + "seeds: [1, 101]\nconfirm: {seeds: {first: 100, count: 8}}":
        "confirm.seeds: seed 101 is one of the study's own",
    # A list of configurations
    LISTED: "configurations.1: the same as configurations.0",
    LISTED.replace("model: 57p\n", "", 1): "configurations.0.model: missing, and the study has none",
    LISTED.replace("{}, ", "{recipe: {step: 1}}, "): "configurations.0.recipe.step: unknown key; did you mean*steps*",
    LISTED.replace("{}, ", "{model: {arc: false}}, "): "configurations.0.model: circular needs arc",
    LISTED + "space: {recipe.lr: {float: [0.1, 0.2]}}": "configurations: *not both",
    # YAML itself
    "": "must be a mapping with name, model and seeds",
    "a: [1": "line 1, column 6: not valid YAML (expected ',' or ']', but got '<stream end>')",
    "a: &b [1]\nc: *b": "line 2, column 4: not valid YAML (aliases are not used in study files)",
    "[" * 5_000: "not valid YAML (nested too deeply)",
}  # fmt: skip
BAD = {text: error.split("\n") for text, error in ({GOOD + k: e for k, e in LINES.items()} | FILES).items()}
