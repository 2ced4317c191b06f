"""What tags, verdicts and ends of jobs mean, in words for people."""

TAGS = {
    "custom_kernel": "A kernel of its own did the work.",
    "torch_only": "Operators of torch did the work; there is no kernel of its own.",
    "tie": "The difference to eager lies inside the noise: it is not known to be faster.",
    "slower": "Slower than eager.",
    "noisy": "The machine was busy with something else at times: no rank; measure again.",
    "beyond_roofline": "Faster than the device's measured limits seem to allow: quarantined, no rank.",
    "too_short": "A call is hardly longer than the hand-over to its process: no rank.",
    "uneven": "Some calls take much longer than those that the speedup counts, or it prepares untimed: no rank.",
    "cold": "Measured with cold caches, as asked for: not comparable, no rank.",
}

VERDICTS = {
    "passed": "Every check of every output passed, and it was timed.",
    "build_failed": "It did not compile, or could not be loaded.",
    "crashed": "Its process died.",
    "timed_out": "It took longer than it may.",
    "out_of_memory": "It needed more memory than it may.",
    "wrong_output": "An output differs from the float64 oracle by more than is allowed.",
    "integrity": "It tried to get around the referee, or its result cannot be trusted.",
    "task_invalid": "The task itself cannot be judged; the candidate is not to blame.",
    "sandbox_error": "The sandbox or the referee failed; the candidate is not to blame.",
    "no_candidate": "The model's reply held no usable candidate.",
    "under way": "This round is still going on.",
}

STOPS = {
    "rounds": "all of its rounds are done",
    "budget": "the budget is spent, or the next call could exceed it",
    "plateau": "too many rounds brought nothing better",
    "roofline": "the best candidate is within reach of the hardware's limit",
    "judge": "the Judge sees nothing left worth trying",
    "submitted": "the Coder handed in what it found best",
    "cancelled": "someone cancelled it",
    "interrupted": "its process was stopped or died",
    "model_unavailable": "the model cannot be used",
    "llm_error": "the model gave no reply",
    "task_invalid": "the task cannot be judged",
    "sandbox_error": "the evaluator could not do its work",
    "sandbox_unavailable": "there was no sandbox to work in",
    "error": "something went wrong in the program itself",
}

REMEDIES = {
    "model_unavailable": "Check the model's name, and that the workers have its provider's key in their environment; "
    "then resume the job. What was paid for is not paid again.",
    "llm_error": "Look at the message; when the provider answers again, resume the job: it goes on where it stopped.",
    "task_invalid": "The op needs a change; `kernelwright tasks check` tells what is wrong with it. Submit it anew.",
    "sandbox_error": "See the log; `kernelwright doctor` on the worker's machine says what it lacks. Resume it then.",
    "sandbox_unavailable": "Run `kernelwright doctor` on the worker's machine, put right what it names, and resume.",
    "error": "Resume the job; if it fails again, report it with the message above.",
}
