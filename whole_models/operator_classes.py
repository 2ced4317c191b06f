"""What kind of work each operator of ATen is: data, read by the rules that cut a graph into regions."""

from whole_models.graph import GET_ITEM, Node

FREE = "free"
"""Views and changes of shape: no element is read or written."""
COPY = "copy"
"""Elements are moved or made, and nothing is computed of them."""
ELEMENT_WISE = "element-wise"
REDUCTION = "reduction"
NORMALIZATION = "normalization"
INDEXING = "indexing"
PRODUCT = "matrix product"
ATTENTION = "attention"
RECURRENCE = "recurrence"
OTHER = "other"

COMPUTING = frozenset({ELEMENT_WISE, REDUCTION, NORMALIZATION, INDEXING})
"""Classes that make a chain worth a kernel."""
OF_CHAINS = COMPUTING | {COPY}
"""Classes whose nodes are joined to chains."""

# Operators by their name without overload.
_NAMES: dict[str, str] = {
    FREE: """
        alias as_strided broadcast_to chunk contiguous detach diagonal dsplit expand expand_as flatten hsplit imag
        lift_fresh movedim narrow permute ravel real reshape reshape_as select slice split split_with_sizes squeeze
        swapaxes swapdims t tensor_split transpose unbind unflatten unfold unsafe_split unsqueeze view view_as
        view_as_complex view_as_real vsplit _reshape_alias _unsafe_view mT adjoint
    """,
    COPY: """
        arange cat clone concat constant_pad_nd copy empty_like eye flip full full_like lift_fresh_copy linspace
        meshgrid new_full new_ones new_zeros ones ones_like pad reflection_pad1d reflection_pad2d repeat
        repeat_interleave replication_pad1d replication_pad2d roll scalar_tensor slice_scatter select_scatter stack tril
        triu zeros zeros_like pixel_shuffle pixel_unshuffle channel_shuffle hstack vstack expand_copy permute_copy
    """,
    ELEMENT_WISE: """
        _native_batch_norm_legit_no_training _to_copy abs acos acosh add addcdiv addcmul angle asin asinh atan atan2
        atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp
        clamp_max clamp_min clip complex conj copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2
        expm1 float_power floor floor_divide fmax fmin fmod frac ge gelu glu gt hardshrink hardsigmoid hardswish
        hardtanh heaviside hypot isfinite isinf isnan isneginf isposinf ldexp le leaky_relu lerp lgamma log log10 log1p
        log2 log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill
        maximum minimum mish mul nan_to_num ne neg polar pow prelu rad2deg reciprocal relu relu6 remainder round rsqrt
        rsub selu sgn sigmoid sign silu sin sinc sinh softplus softshrink softsign sqrt square sub tan tanh tanhshrink
        threshold to true_divide trunc where xlogy _prelu_kernel
    """,
    REDUCTION: """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d all amax amin aminmax any argmax
        argmin avg_pool1d avg_pool2d avg_pool3d binary_cross_entropy count_nonzero cross_entropy_loss cummax cummin
        cumprod cumsum dist huber_loss kl_div l1_loss linalg_vector_norm logcumsumexp logsumexp max
        max_pool1d max_pool2d max_pool2d_with_indices max_pool3d mean median min mse_loss nansum nll_loss
        nll_loss_forward norm prod smooth_l1_loss std std_mean sum var var_mean _adaptive_avg_pool2d cosine_similarity
    """,
    NORMALIZATION: """
        _fused_rms_norm _log_softmax _native_batch_norm_legit _native_batch_norm_legit_functional _safe_softmax _softmax
        _weight_norm batch_norm cosine_normalize group_norm instance_norm layer_norm local_response_norm log_softmax
        native_batch_norm native_group_norm native_layer_norm normalize rms_norm softmax _batch_norm_no_update
    """,
    INDEXING: """
        _embedding_bag _embedding_bag_forward_only embedding embedding_bag gather grid_sampler grid_sampler_2d index
        index_add index_copy index_fill index_put index_select masked_scatter one_hot scatter scatter_add scatter_reduce
        searchsorted take take_along_dim upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_trilinear3d bucketize
    """,
    PRODUCT: """
        _convolution addbmm addmm addmv baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_transpose1d
        conv_transpose2d conv_transpose3d convolution dot einsum inner linear matmul mm mv outer
    """,
    ATTENTION: """
        _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu scaled_dot_product_attention
    """,
    RECURRENCE: "gru gru_cell lstm lstm_cell mkldnn_rnn_layer rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell",
}
# Overloads whose work is not that of their name.
_OVERLOADS = {"aten.max.other": ELEMENT_WISE, "aten.min.other": ELEMENT_WISE}
_BY_NAME = {name: kind for kind, names in _NAMES.items() for name in names.split()}

OF_TWO_ACTIVATIONS = frozenset({"addbmm", "baddbmm", "bmm", "einsum", "matmul", "mm"})
"""Products that attention is written with."""
SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax"})
OF_A_ROOT = frozenset({"rsqrt", "sqrt"})
"""Operators that, with a reduction, make a normalization that is written out."""


def short_name(operator: str) -> str:
    """`add` of `aten.add.Tensor`."""
    return operator if operator == GET_ITEM else operator.split(".")[1]


def class_of(node: Node) -> str:
    """The class of a node's operator; `other` for one that is not known. A `getitem` is free."""
    if node.operator == GET_ITEM:
        return FREE
    return _OVERLOADS.get(node.operator) or _BY_NAME.get(short_name(node.operator), OTHER)
