"""What a name of CANN's interface belongs to."""

import re

# First match counts.
_FEATURES = (
    ("torch", r"_ZN?K?(?:St\w*)?(?:2at|3c10|4c10d|5torch|6caffe2)|_ZT\w*(?:2at|3c10|4c10d|5torch)|THP|THNP"),
    ("python", r"_?Py"),
    ("ATB", r"_Z\w*3atb|atb|Atb"),
    ("GE and torchair", r"_Z\w*(?:2ge|3gert|7ge_)|_ZN\w*(?:AscendString|DlogRecord)|ge[A-Z]|aclgrph|GE"),
    ("graphs", r"aclmdlRI|aclsk"),
    ("memory", r"aclrt\w*(?:Mem|Malloc|Free|Physical|HostRegister|HostUnregister|Pointer|Cmo)|aclshmem"),
    ("streams and events", r"aclrt\w*(?:Stream|Event|Notify|Report|Callback|HostFunc|Value|LastError|ErrorVerbose|ResInCurrent)"),
    ("kernels", r"aclrt\w*(?:Binary|Kernel|Function|Launch|HardwareSync|C2cCtrl)|rt[A-Z]"),
    ("runtime", r"aclrt|aclInit|aclFinal|aclsys|aclGetRecent|aclGetDevice|aclGetCann|aclUpdate|aclSet|aclGetCompileopt"),
    ("profiler", r"aclprof|aclProfiling|mspti|mstx|Msprof|prof[A-Z]"),
    ("dumps and debugging", r"acldump|aclmdl|aclopStartDump|aclopStopDump|aclGenGraph|acl\w*GraphDumpOpt|aclStressDetect|dvm_"),
    ("hccl", r"Hccl|Hcomm|hcom|Hcom"),
    ("host data queues", r"acltdt"),
    ("legacy operators", r"aclop|acl(?:Create|Destroy)DataBuffer|aclDataType|aclCreateTensorDesc|acl\w*TensorDesc"),
    ("CPU affinity", r"dcmi"),
    # aclnn, by family
    ("aclnn: gradients", r"aclnn\w*(?:Grad|Backward)"),
    ("aclnn: lists (foreach), optimisers", r"aclnn(?:Foreach|\w*Adam|\w*EmaUpdate|ApplyFused)"),
    (
        "aclnn: with collectives",
        r"aclnn\w*(?:AllReduce|Alltoall|AlltoAll|AllGather|ReduceScatter|Distribute|MegaMoe|Barrier|MoeUpdateExpert|Ffn\w*Worker"
        r"|AttentionToFFN|FFNToAttention|AttentionWorker)",
    ),
    ("aclnn: quantisation", r"aclnn\w*(?:Quant|WeightQuant|Fp8|Mx|Int4|TransQuantParam|TransSparse4to2)"),
    ("aclnn: MoE and grouped products", r"aclnn\w*(?:Moe|Grouped|GatingTopK|FFN)"),
    ("aclnn: attention and KV cache", r"aclnn\w*(?:Attention|Attn|Mla|KvRms|KVRms|KvCache|PaCache|PaKv|Indexer|Compressor)"),
    ("aclnn: rotary embedding and norms", r"aclnn\w*(?:Norm|Rotary|Rope|Qkv)"),
    ("aclnn: products", r"aclnn\w*(?:Matmul|MatMul|Addmm|Addmv|Addbmm|Baddbmm|Mm$|Mv$|Gemm|Dot$|Einsum|Addr$|Ger$|Linear)"),
    (
        "aclnn: convolutions, pools, images",
        r"aclnn\w*(?:Conv|Pool|Upsample|Im2col|Col2im|Grid|Pad|Roi|Nms|Image|Bbox|Iou|Resize|Deformable|Shuffle|Crop|BoundingBox|Unfold)",
    ),
    (
        "aclnn: random and sampling",
        r"aclnn\w*(?:Random|Normal|Uniform|Bernoulli|Multinomial|Dropout|DropOut|Randperm|Exponential|Geometric|TopKTopP|Sample|RRelu)",
    ),
    ("aclnn: recurrent", r"aclnn\w*(?:Lstm|LSTM|Gru|GRU|Rnn)"),
    ("aclnn: losses", r"aclnn\w*Loss|aclnn\w*CrossEntropy|aclnnCtc"),
    (
        "aclnn: linear algebra and Fourier",
        r"aclnn\w*(?:Cholesky|Qr$|Svd|Inverse|Triangular|Slogdet|Logdet|Cross|Cdist|Pdist|Fft|Det$|Householder)|acl(?:Rfft|Stft)",
    ),
    ("aclnn: other", r"aclnn"),
    ("operator interface", r"acl|PTA|InitHuge|UnInit|ReleaseHuge|InitPTA|SetPTA|CanUsePTA|AddTensorAddr"),
)
_PATTERNS = tuple((feature, re.compile(pattern)) for feature, pattern in _FEATURES)
FEATURES = tuple(feature for feature, _ in _FEATURES) + ("other",)

# Strings by which torch_npu finds functions of CANN. The compiler folds "aclnnAdd" into the end of no other string, so
# the whole name stands there.
_LOOKED_UP = re.compile(
    r"acl(?:nn|rt|mdl|op|prof|sys|sk|dump)?[A-Z]\w*|aclshmemx?_\w+|Hccl[A-Z]\w*|HcommMem\w+|HcomGet\w+|mspti[A-Z]\w*|mstx[A-Z]\w*"
    r"|dcmi(?:v2)?_\w+|rt(?:Dev|Function|Get|Kernel)\w+"
    r"|(?:Un)?InitHugeMemThreadLocal|ReleaseHugeMem|(?:Un)?InitPTACacheThreadLocal|PTA(?:Get|Find)ExecCache|SetPTA\w*HashKey"
    r"|CanUsePTACache|AddTensorAddrToCachedList"
)
# Names of torch_npu's own: functions that wrap one of CANN, and what its traces call a collective.
_OWN = re.compile(r"\w+(?:Face|_SendRecv)|Hccl(?:Allgather\w*|Allreduce|ReduceScatterBase|CommList)")


def feature_of(name: str) -> str:
    return next((feature for feature, pattern in _PATTERNS if pattern.match(name)), "other")


def is_looked_up(name: str) -> bool:
    """Whether a string of torch_npu's is a name of CANN's interface."""
    return bool(_LOOKED_UP.fullmatch(name)) and not _OWN.fullmatch(name)
