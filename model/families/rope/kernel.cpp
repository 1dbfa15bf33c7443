// Compiled for one shape: WIDTH, HEADS of queries, FFN, POSITIONAL (an input depends on its position too), ANSWERS,
// PROMPT_TOKENS; for another task VOCABULARY and COUNTED.
#include "kernel_body.h"
#include "kernel_library.h"
