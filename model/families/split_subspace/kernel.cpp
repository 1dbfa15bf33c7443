// Compiled for one shape: TOK and POS dimensions, VOCABULARY, HEADS, CHANNELS of a head, SUMMED (heads add into the same
// channels), CIRCLE (attention is the same for all problems), FFN (hidden units), BIAS, ANSWERS; for another task
// PROMPT_TOKENS and COUNTED.
#include "kernel_body.h"
#include "kernel_library.h"
