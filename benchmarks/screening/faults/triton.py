"""Faults planted in candidates of platform `triton`, by name."""

from benchmarks.screening.faults.fault import Fault

FAULTS = {
    "misspelled_function": Fault(
        "triton", "mixed_pool", "a function of the language is misspelled", (("tl.sigmoid(", "tl.sigmod("),)
    ),
    "not_a_power_of_two": Fault(
        "triton",
        "add_layer_norm",
        "a block as long as a row need not be a power of two",
        (("block = triton.next_power_of_2(features)", "block = features + 8"),),
    ),
    "mask_of_a_load_left_out": Fault(
        "triton",
        "adaptive_norm_block",
        "a row is loaded with no mask",
        (("x_ptr + token * features + columns, mask=inside, other=0.0)", "x_ptr + token * features + columns)"),),
    ),
    "mask_of_a_store_left_out": Fault(
        "triton",
        "conv_relu_pool",
        "a tile is stored with half of its mask, over the next channel",
        (("mask=exists[:, None] & there[None, :])", "mask=exists[:, None])"),),
    ),
    "block_too_small_for_large_rows": Fault(
        "triton",
        "label_smoothing_loss",
        "a block that does not cover rows of more than 512",
        (("block = triton.next_power_of_2(classes)", "block = min(triton.next_power_of_2(classes), 512)"),),
    ),
    "atomic_left_out": Fault(
        "triton",
        "label_smoothing_loss",
        "programs add to one place with a load and a store",
        (
            (
                "    tl.store(losses_ptr + sample, loss * tl.load(weights_ptr + sample))\n",
                "    loss = loss * tl.load(weights_ptr + sample) + tl.load(losses_ptr + sample % 64)\n"
                "    tl.store(losses_ptr + sample % 64, loss)\n",
            ),
            ("losses = torch.empty(samples,", "losses = torch.zeros(samples,"),
        ),
    ),
    "two_programs_write_one_place": Fault(
        "triton",
        "rotary_embedding",
        "tiles of programs overlap",
        (
            (
                "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
                "row = tl.program_id(0) * (ROWS - 1) + tl.arange(0, ROWS)",
            ),
        ),
    ),
    "wrong_for_nan": Fault(
        "triton",
        "conv_relu_pool",
        "a maximum that drops NaN",
        (("tl.where((sums > most) | (sums != sums), sums, most)", "tl.maximum(most, sums)"),),
    ),
    "precision_of_a_product": Fault(
        "triton",
        "pairwise_distance",
        "float32 is rounded to TF32 in a product",
        ((', input_precision="ieee")', ")"),),
    ),
    "wrong_in_one_configuration": Fault(
        "triton",
        "pairwise_distance",
        "a loop steps by a number where configurations differ",
        (
            ('{"M": 64, "N": 128, "K": 32}', '{"M": 64, "N": 128, "K": 64}'),
            ("range(0, dimensions, K)", "range(0, dimensions, 32)"),
        ),
    ),
    "first_row_of_tiles_alone": Fault(
        "triton",
        "pairwise_distance",
        "every program of a column makes the tile of the first rows",
        (("rows = tl.program_id(0) * M + tl.arange(0, M)", "rows = tl.arange(0, M)"),),
    ),
    "wrong_last_column": Fault(
        "triton",
        "bilinear_resize",
        "the last column takes its neighbour on the wrong side",
        (("tl.minimum(first + 1, size - 1)", "tl.minimum(first + 1, size - 2)"),),
    ),
}
