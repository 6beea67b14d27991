"""Failures of torch.compile, of imports, and of the training itself."""

from __future__ import annotations

from orchestrator.probes.failures.signature import Signature, signature

SIGNATURES: tuple[Signature, ...] = (
    signature(
        "dynamo_fx_nested",
        "symbolically trace a dynamo|dynamo-optimized function|symbolically trac",
        r"using FX to (?:symbolically trace|torch\.jit\.trace) a dynamo-optimized"
        r"|symbolically trac\w{1,5} a dynamo-optimized",
    ),
    signature(
        "recompile_limit",
        "recompile_limit|cache_size_limit|recompile limit|recompiles",
        r"torch\._dynamo hit config\.(?P<setting>\w{0,40}(?:recompile_limit|cache_size_limit)) \((?P<limit>\d{1,9})\)"
        r"|\b(?P<setting2>(?:accumulated_)?(?:recompile_limit"
        r"|cache_size_limit)) (?:of (?P<limit2>\d{1,9}) )?(?:reached|exceeded|hit)"
        r"|FailOnRecompileLimitHit|hit the recompile limit",
        r"function: '?(?P<function>[^'\n(]{1,200})'? \((?P<file>[^:\n)]{1,300}):(?P<line_number>\d{1,7})\)",
        r"(?:last )?reasons?: {1,8}(?P<reason>[^\n]{1,300})",
        following=4,
    ),
    signature(
        "eager_fallback",
        "fall back|falling back|fallback|without torch.compile|suppress_errors|convert_frame|unoptimized",
        r"(?:fall(?:ing)? ?back|fallback) to (?:the )?eager\b"
        r"|(?P<attention>flex_attention) called without torch\.compile"
        r"|WON'T CONVERT (?P<function>[^\n]{1,200})|will use an unfused implementation"
        r"|materializ\w{1,6} the full scores matrix",
        unless=r"you can suppress|TORCHDYNAMO_|instead of falling",
    ),
    signature(
        "compile_failed",
        "ptxas|unsupported:|backendcompilerfailed|inductorerror|loweringexception|internaltorchdynamoerror"
        "|torchruntimeerror|minifier|"
        "compiled fx graphmodule "
        "failed|cppcompileerror|tritonmissing|guardonDatadependent|compilationerror|subprocexception",
        r"torch\._(?:dynamo|inductor)\.exc\.(?P<error>(?:Unsupported|BackendCompilerFailed|InductorError"
        r"|LoweringException|InternalTorchDynamoError"
        r"|TorchRuntimeError|CppCompileError|TritonMissing|UserError"
        r"|UncapturedHigherOrderOpError)): ?(?P<message>[^\n]{0,300})"
        r"|^(?P<error2>BackendCompilerFailed|InternalTorchDynamoError|InductorError|LoweringException|CppCompileError"
        r"|SubprocException): (?P<message2>[^\n]{0,300})"
        r"|Compiled Fx GraphModule failed|triton\.compiler\.errors\.(?P<error3>CompilationError)"
        r"|\bPTXASError: (?P<message3>[^\n]{0,300})|^ptxas fatal +: (?P<message4>[^\n]{1,300})|Cannot find ptxas",
        r"raised:\s{1,4}(?P<raised>\S[^\n]{1,300})",
        r"\] (?:\[\d{1,4}/\d{1,4}\] )?(?P<repro>/\S{1,400}minifier_launcher\.py)",
        following=4,
    ),
    signature(
        "recompute_mismatch",
        "recomputed values|during the original forward and recomputation",
        r"Recomputed values for the following tensors have different metadata"
        r"|A different number of tensors was saved during the original forward and recomputation",
    ),
    signature(
        "triton_resources",
        "out of resource|outofresources|no valid triton configs",
        r"OutOfResources: out of resource: (?P<resource>[\w ]{1,40}), Required: (?P<required>\d{1,12}),? "
        r"Hardware limit: ?(?P<hardware_limit>\d{1,12})"
        r"|No valid triton configs|out of resource: ",
    ),
    signature(
        "compile_failed",
        "python.h: no such file|failed to find c compiler",
        r"fatal error: (?P<message>Python\.h): No such file|(?P<message2>Failed to find C compiler)",
    ),
    signature(
        "weights_mismatch",
        "in loading state_dict",
        r"Error\(s\) in loading state_dict for (?P<model>\w{1,80})",
    ),
    signature(
        "hub_access",
        "gated repo|repository not found for url|huggingface.co|localentrynotfounderror|offlinemodeisenabled"
        "|datasetnotfounderror|on the hub",
        r"access a gated repo|Access to model (?P<repo>\S{1,120}) is restricted|Repository Not Found for url"
        r"|\b(?P<status>40[134]|429|5\d\d) (?:Client|Server) Error[^\n]{0,80} for url: https://huggingface\.co"
        r"|is not a valid model identifier listed on '?https://huggingface|DatasetNotFoundError: "
        r"|Couldn't reach '?(?P<repo2>[^'\n]{1,200}?)'? on the Hub"
        r"|couldn't connect to '?https://huggingface\.co|LocalEntryNotFoundError: |OfflineModeIsEnabled: "
        r"|HTTPSConnectionPool\(host=\\?'huggingface\.co\\?'[^\n]{0,300}"
        r"(?:Max retries exceeded|Read timed out|Failed to resolve)",
    ),
    signature(
        "missing_library",
        "cannot open shared object file|failed to open lib|could not load library|not found (required by"
        "|unable to load any of",
        r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,40}): cannot open shared object file"
        r"|failed to open (?P<library4>lib[\w+-]{1,80}\.so(?:\.\d{1,6}){0,4})"
        r"|Could not load library (?P<library2>\S{1,120}?)\.(?: Error:|\s)"
        r"|Unable to load any of \{(?P<library3>[^}\n]{1,200})\}",
    ),
    signature(
        "abi_mismatch",
        "undefined symbol|glibcxx|glibc_|numpy.dtype size changed|_array_api not found|symbol lookup error",
        r"(?P<library>[^\s:']{1,300}\.so[\w.]{0,40}): (?:undefined symbol: ?(?P<symbol>\w{1,400})"
        r"|version `(?P<version>[^'\n]{1,40})' not found)"
        r"|/lib[^\s:]{1,200}: version `(?P<version2>[^'\n]{1,40})' not found|numpy\.dtype size changed"
        r"|_ARRAY_API not found",
        r"required by (?P<wanting>[^)\n]{1,300})",
    ),
    signature(
        "import_error",
        "no module named|cannot import name|importerror:",
        r"ModuleNotFoundError: No module named '(?P<module>[^'\n]{1,200})'"
        r"|ImportError: cannot import name '(?P<name>[^'\n]{1,200})' from (?:partially initialized module "
        r")?'(?P<module2>[^'\n]{1,200})'"
        r"|^ImportError: (?P<message>[^\n]{1,300})",
        unless=r"\.so[\w.]*: (?:cannot open|undefined|version)|^\s*(?:raise|except)\b",
    ),
    signature(
        "loss_scale_floor",
        "loss scale already at minimum|minimum loss scale",
        r"loss scale already at minimum|minimum loss scale reached",
    ),
    signature(
        "skipped_steps",
        "overflow|skipping step|found inf|gradient overflow|skipped iterations",
        r"OVERFLOW!.{0,60}skipping step|Gradient overflow\. +Skipping step"
        r"|\bnumber of skipped iterations: {1,8}(?P<count>[1-9]\d{0,8})\b",
        r"\biteration {1,12}(?P<iteration>\d{1,12})/",
        r"Rank (?P<rank>\d{1,6}) skipping",
        r"attempted loss scale: (?P<attempted_scale>[\d.]{1,24}), reducing to (?P<scale>[\d.]{1,24}\d)",
        r"reducing loss scale to (?P<scale>[\d.e+]{1,24}\d)",
    ),
    signature(
        "divergence",
        "nan",
        r"\bloss(?: is|:|=|'?: ?'?)? ?(?:is )?nan\b(?!['\"]?\w)|loss is (?:nan|inf)|(?:nan"
        r"|inf) loss (?:encountered|detected|at)|returned nan values|nan (?:encountered|detected) in (?:the )?loss"
        r"|unexpected result (?:nan|-?inf)\b|found nan in [\w ]{0,30}(?:loss|grad)"
        r"|\bnumber of nan iterations: {1,8}(?P<count>[1-9]\d{0,8})\b|loss returned in `?\w{1,40}`? is (?:nan|-?inf)\b",
        r"\biteration {1,12}(?P<iteration>\d{1,12})/",
    ),
)
