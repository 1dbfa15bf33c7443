// Compiled for one shape: WIDTH, FFN, INNER (the rank of the FFN's factors; 0: none), RANK channels of queries, keys and
// values, VALUES (they are read apart from keys), LAYER (LayerNorm, not RMSNorm), ANSWERS; for another task VOCABULARY, PROMPT_TOKENS and COUNTED.
#include "kernel_body.h"
#include "kernel_library.h"
