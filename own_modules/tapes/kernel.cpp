// The kernel of a net that was recorded (own_modules/tapes): its tape, "recording.h", is compiled into it. Macros: ANSWERS,
// VOCABULARY, PROMPT_TOKENS and COUNTED, as model/cpp/kernel.h reads them.
#include "recorded.h"
#include "kernel_library.h"
