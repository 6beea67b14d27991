"""The words and shapes in which trainings print their progress: names, units, bars.

Widen these tables, with the line that was met as a test case. All is matched against lower case.
"""

from __future__ import annotations

import re

from orchestrator.probes.rate import ITERATIONS, SAMPLES, TOKENS

# What is counted, and how it is written.
COUNTED: dict[str, str] = {
    TOKENS: r"tokens?|toks?",
    SAMPLES: r"samples?|sequences?|seqs?|examples?|images?|imgs?",
    ITERATIONS: r"iterations?|iters?|its?|steps?|batch(?:es)?",
}
# Names before the number: `tps: 10,050`. Units in front of it (`tok/s 21500`) come from COUNTED.
NAMED_RATES: tuple[tuple[str, str, bool], ...] = (  # names, what is counted, of one device
    (r"(?:throughput/)?(?:train_)?tokens_per_s(?:ec(?:ond)?)?", TOKENS, False),
    (r"throughput/device/tokens_per_s(?:ec(?:ond)?)?|tokens_per_s(?:ec(?:ond)?)?_per_(?:gpu|device)", TOKENS, True),
    (r"tokens per gpu per second(?: \(tgs\))?", TOKENS, True),  # Megatron-DeepSpeed
    (r"perf/throughput", TOKENS, True),  # verl
    (r"throughput/device/tps", TOKENS, True),  # OLMo-core
    (r"tokens/train_per_sec_per_gpu", TOKENS, True),  # axolotl
    (r"tps(?=:\s{0,12}[\d,]{1,20}\s{1,12}tflops)", TOKENS, True),
    (r"tps", TOKENS, False),
    (r"tgs", TOKENS, True),
    (r"(?:train_|interval_)?(?:samples|examples|sequences)_per_s(?:ec(?:ond)?)?", SAMPLES, False),
    (r"throughput/device/samples_per_sec", SAMPLES, True),  # Composer
    (r"throughput/samples_per_sec", SAMPLES, False),
    (r"currsamplespersec", SAMPLES, False),
    (r"runningavgsamplespersec", SAMPLES, False),
    (r"wps(?==)", TOKENS, False),  # fairseq: words, updates
    (r"ups(?==)(?!=0\b(?!\.))", ITERATIONS, False),  # old ones print whole numbers: 0 is none
    (r"global_steps?/s(?:ec)?", ITERATIONS, False),  # TensorFlow's estimator
    (r"throughput/(?:device/)?batches_per_s(?:ec(?:ond)?)?", ITERATIONS, False),
    (r"(?:train_|interval_)?(?:steps|iters|iterations|batches)_per_s(?:ec(?:ond)?)?", ITERATIONS, False),
)
NAMED_TIMES = (
    r"elapsed[ _]time[ _]per[ _]iteration(?:_ms)?",
    r"(?:iter(?:ation)?|step|batch)[ _]time",
    r"(?:seconds|s|sec|ms)_per_(?:step|it|iter|iteration)",
    r"time[ _]per[ _](?:step|iteration)",
    r"(?:iter_)?dt",
    r"per-step time",
    r"seconds(?=: [\d.]{1,12}, tflop)",  # MaxText
    r"step_avg",
    r"(?:ms|s|sec)/(?:batch|step|iter)",
    r"(?<=, )time(?!=)",
    r"train_step_timing in s",  # NeMo
)
ABSURD = 1e15
"""No rate is as high: a number that is says something else."""
STEP_NAMES = ("global_step", "global step", "step", "iteration", "iter")
"""What they mean most first."""
LOSS_NAMES = (
    r"(?:train(?:ing)?[/_ ]|lm[_ ])loss",
    r"(?:reduced_train|total|gpt|step)_loss",
    r"train/crossentropyloss",
    r"loss/train/total",
    r"loss[/_ ]train(?:ing)?(?: \(\w{1,12}\))?",
    r"(?<!value )(?<!function )(?<!surrogate )(?<!entropy )(?<!policy )(?<!critic )(?<!actor )"
    r"(?<!val )(?<!eval )(?<!valid )(?<!validation )(?<!test )loss",
)
AVERAGE_LOSS_NAMES = r"(?:av[gr]|mean)_loss"
"""Of all steps: where the last one's is not told."""
SPEED_WORDS = {"speed", "throughput", "rate", "avg", "at", "training"}
OTHER_BARS = re.compile(
    r"load|map|filter|download|fetch|tokeni|eval|valid|test|pack|sav|upload|sanity|predict|convert|resolv|shard|cach"
    r"|generat|prepar|collect"
    r"|\b(?:captur|compil|quanti[sz]|delet|apply|formatt|truncat|extract|standardi[sz]|group|creat|add|render|warm)ing\b"
    r"|\b(?:casting the|flattening the|setting num_proc|processed prompts|deepgemm warmup)\b"
)
"""What a bar that is not the training's begins with."""

NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d+)?"
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})"
GAP = r"\s{0,12}"
AFTER = r"(?![\w]|[.,:/-]\d)"
BEFORE = r"(?<![\w./-])"
AVERAGE = r"(?:/\d{1,12}\.\d{1,6})?"
"""Behind the last one's, as Primus prints it."""
SEPARATOR = rf"['\"]?{GAP}(?:\((?P<name_unit>ms|s)\))?{GAP}[:=]?{GAP}['\"]?"
A_SECOND = rf"(?:{GAP}/{GAP}|\s{{1,12}}per\s{{1,12}})s(?:ec(?:ond)?s?)?"
OF_A_DEVICE = rf"(?P<device>(?:{GAP}/{GAP}|\s{{1,12}}per\s{{1,12}})(?:gpu|device|rank|chip))?"
ANY_COUNTED = "|".join(COUNTED.values())
SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


BAR = re.compile(
    rf"(?:(?:\d{{1,3}}%\|[^|]*\|{GAP}|(?<![\w./])(?=\d{{1,15}}/\d{{1,15}} \[))"
    rf"(?P<step>\d{{1,15}})/(?P<total>\d{{1,15}})|(?<![\w.])(?P<bare>\d{{1,15}})(?:it|/\?))"
    rf"{GAP}\[[\d:]+(?:<(?:(?P<left>(?:\d{{1,6}}:)?\d{{1,4}}:\d\d(?![\d:])|\?)|[\d:]{{1,12}}))?"
    rf"(?:,{GAP}(?:\?|(?P<rate>{NUMBER})){GAP}(?P<scale>[kmg]?)(?P<unit>s/[a-z]+|[a-z]+/s))?"
)
BEFORE_BAR = re.compile(r"(.*?)(?:\d{1,3}%\||(?<![\w./])\d{1,15}(?:/\d{1,15}| [a-z]{1,12}) \[\d\d)")
OTHER_RATES = re.compile(r"(?:prompt|generation|download|upload|read|write) throughput")
UNIT_RATE = re.compile(
    rf"(?:(?<!\w)(?P<before>[a-z_]\w*)['\"]?{GAP}[:=]?{GAP})?(?<![\w.,-])(?P<value>{NUMBER}){GAP}(?P<scale>[kmg]?)"
    rf"\s?(?P<counted>{ANY_COUNTED}){A_SECOND}{OF_A_DEVICE}\b(?!{GAP}[:=])(?P<follows>\s{{1,12}}{NUMBER})?"
)
UNIT_TIME = re.compile(
    rf"(?<![\w.,-])(?P<value>{NUMBER}){GAP}(?P<milli>m?)s(?:ec(?:ond)?s?)?"
    rf"(?:{GAP}/{GAP}|\s{{1,12}}per\s{{1,12}})(?:{COUNTED[ITERATIONS]})\b"
)
NAMED_BY_UNIT = re.compile(
    rf"{BEFORE}(?P<counted>{ANY_COUNTED}){A_SECOND}{OF_A_DEVICE}\)?{SEPARATOR}"
    rf"(?P<value>{NUMBER}){AVERAGE}(?: ?(?P<scale>[km]))?{AFTER}"
)
NAMED = tuple(
    (re.compile(rf"{BEFORE}(?:{names}){SEPARATOR}(?P<value>{NUMBER})(?: ?(?P<scale>[km]))?{AFTER}"), counted, of_one)
    for names, counted, of_one in NAMED_RATES
)
NAMED_TIME = re.compile(
    rf"{BEFORE}(?P<name>{'|'.join(NAMED_TIMES)}){SEPARATOR}(?P<value>{NUMBER}){AVERAGE}{GAP}(?P<unit>ms|s)?{AFTER}"
)
STEP = re.compile(
    rf"(?<![\w.-])(?P<name>{'|'.join(STEP_NAMES)})s?['\"]?{GAP}[:=#]?{GAP}"
    rf"(?P<step>{WHOLE})(?:{GAP}(?:/|of){GAP}(?P<total>{WHOLE}))?{AFTER}(?!%)"
)
LOSS = re.compile(
    rf"{BEFORE}(?:{'|'.join(LOSS_NAMES)}|(?P<average>{AVERAGE_LOSS_NAMES}))['\"]?"
    rf"(?: \(\w{{1,12}}\))?{GAP}[:=]?{GAP}['\"]?"
    rf"(?P<value>-?{NUMBER}|-?inf(?:inity)?|nan){AFTER}"
)
ONLY_A_STEP = re.compile(
    rf"(?:[\[\]()\d\s:.,/|#-]|\b(?:info|debug|rank\d{{0,6}}|epoch)\b)*"
    rf"(?:global[ _]?)?(?:step|iter(?:ation)?){GAP}[:=#]?{GAP}\d+\W*"  # `steps = 750` is a setting
)
ETA = re.compile(
    rf"(?<!\w)(?:eta|remaining(?:_time)?|time left|estimated time to finish)\b"
    rf"['\"]?{GAP}[:=]?{GAP}['\"]?(?:(?P<days>\d{{1,6}}) days?, ?)?"
    r"(?:(?P<clock>\d{1,6}:\d\d(?::\d\d)?)"
    rf"|(?P<words>(?:\d{{1,9}}(?:\.\d+)?{GAP}(?:hours?|h|minutes?|min|m|seconds?|sec|s)\b,?{GAP}){{1,3}}))"
)
_OF = r"(?P<step>\d{1,15}) {0,3}/ {0,8}(?P<total>\d{1,15})"
STEP_SHAPES = (  # a word that is in it, its shape
    # `Epoch: [0][511/1736]`, `Epoch(train)  [1][  50/7330]`: step within the epoch
    (
        "epoch",
        re.compile(rf"\bepoch(?:\(train\))?:? {{0,3}}\[ {{0,6}}\d{{1,6}}(?:/\d{{1,6}})?\] {{0,3}}\[ {{0,8}}{_OF}\]"),
    ),
    ("epoch", re.compile(rf"\| epoch {{1,4}}\d{{1,6}}: {{1,8}}{_OF} ")),  # fairseq
    ("iter", re.compile(rf"\biter(?:\(train\))? {{1,3}}\[ {{0,8}}{_OF}\]")),
    ("train", re.compile(rf"\btrain: \d{{1,6}} \[ {{0,8}}{_OF} \(")),  # timm
    ("[batch=", re.compile(rf"\[batch={_OF}\]")),  # composer
    ("batch ", re.compile(rf"\bbatch \[?{_OF}\b")),
    (" steps", re.compile(rf"(?<![\w./]){_OF} steps\b")),
    ("it=", re.compile(r"(?<![\w.])it=(?P<step>\d{1,15})(?P<total>)(?![\w.])")),
    ("skipped=", re.compile(r"\bstep=(?P<step>\d{1,15})(?P<total>), skipped=\d")),  # DeepSpeed
    (", batch ", re.compile(r"\bepoch \d{1,6}, batch (?P<step>\d{1,15})(?P<total>), ")),  # icefall
    ("| loss ", re.compile(r"^\s{0,8}(?P<step>\d{1,15})(?P<total>)(?= \| loss )")),  # llama2.c
    ("] [", re.compile(r"\] \[(?P<step>\d{1,15})(?P<total>)\](?= \w{0,20}loss=)")),  # clu
    ("max_steps", re.compile(rf"global_step/max_steps['\"]: ['\"]{_OF}['\"]")),  # ms-swift
    (
        ", epoch ",
        re.compile(rf"^\s{{0,8}}\[ {{0,8}}{_OF} \d{{1,6}}:\d\d(?::\d\d)?(?: <|,)"),
    ),  # transformers, in a notebook
    (" batches", re.compile(rf"\| {{1,8}}{_OF} batches\b")),
    (
        "current_steps",
        re.compile(r"['\"]current_steps['\"]: (?P<step>\d{1,15}), ['\"]total_steps['\"]: (?P<total>\d{1,15})"),
    ),
    ("\u2501", re.compile(rf"^\s{{0,8}}{_OF} \u2501")),  # keras 3
    ("\u2501", re.compile(rf"[\u2501\u2578\u257a] {{1,3}}{_OF} {{1,3}}\d{{1,4}}:\d\d:\d\d ")),  # Lightning with rich
    (" [=", re.compile(rf"^\s{{0,8}}{_OF} \[=*>?\.*\]")),  # keras
)
LOST_COLOUR = re.compile(r"\[(?:0|1|[349]\d|10[0-7])(?:;\d{1,3})?m(?![\s\]])|\[39m|\[0m")
MM_TIME = re.compile(
    rf"(?<![\w.])time['\"]?: {{1,3}}(?P<value>{NUMBER})(?=,? {{1,4}}['\"]?(?:(?:data|last)_time|data: ))"
)  # seconds
IMAGENET_TIME = re.compile(rf"\btime\s{{1,4}}(?P<value>{NUMBER}) \(\s{{0,6}}[\d.]{{1,12}}\)\s{{1,4}}data\s")  # seconds
TIMM_RATE = re.compile(rf"time: {{1,3}}[\d.]{{1,12}}s, {{1,8}}(?P<value>{NUMBER})/s\b")
DURATION_WORD = re.compile(r"(\d+(?:\.\d+)?)\s*([hms])")
# `[... timer.py] 0/3, RunningAvgSamplesPerSec=...`: epoch/step.
DEEPSPEED = re.compile(r"\] \d+/(?P<step>\d{1,15}), runningavgsamplespersec=")
# `100: 2.345678, 2.456789 avg loss, 0.001000 rate, 3.456789 seconds, 6400 images`
DARKNET = re.compile(
    rf"\s*(?P<step>\d{{1,15}}): (?P<loss>{NUMBER}|-?nan|inf), (?:{NUMBER}|-?nan|inf) avg(?: loss)?, {NUMBER} rate, "
    rf"(?P<value>{NUMBER}) seconds, \d{{1,15}} images\b"
)
# `[  0]      10 || B: 6.981 | C: 6.276 | M: 5.049 | S: 1.818 | T: 20.124 || ETA: 2 days, 22:15:24 || timer: 0.290`
YOLACT = re.compile(
    rf"\s*\[ {{0,6}}\d{{1,6}}\] +(?P<step>\d{{1,15}}) \|\| (?:[a-z]: {NUMBER} \| ){{1,12}}"
    rf"t: (?P<loss>{NUMBER}|nan|inf) \|\| eta: [^|]{{1,40}} \|\| timer: (?P<value>{NUMBER})"
)
# `    3 7.34 s run, 11.8750 loss, ...`
TINYGRAD = re.compile(rf"\s*(?P<step>\d{{1,15}}) +(?P<value>{NUMBER}) s run, +(?P<loss>{NUMBER}|nan|inf) loss,")
# A line without any of these says nothing; those without some need not be searched for these.
SAYS_STEP = (
    "step",
    "iter",
    "epoch",
    "train:",
    "[batch=",
    "batch ",
    " batches",
    " [=",
    "| loss ",
    "] [",
    "|| timer",
    "it=",
    "\u2501",
)
SAYS_LOSS, SAYS_BAR = ("loss",), ("%|", "it [", "it[", "/? [", "/s]", "s/it")
SAYS_UNIT = ("/s", "/ s", "per s", "s/", "s /", "s per")
SAYS_NAMED = ("_per_", "global_step", "tps", "tgs", "persec", "wps", "ups", "perf/throughput")
SAYS_TIME = ("time", "seconds:", "timing", "_per_", "dt", "step_avg", "s/batch", "s/step", "s/iter", "sec/")
SAYS_ETA = ("eta", "remaining", "time left", "time to finish")
