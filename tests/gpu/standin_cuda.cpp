// CUDA's driver and NVRTC in one library, for tests and rehearsals: NVRTC compiles the engine's text by g++, and its cubin is
// the path of what came out; the driver runs that, teams as fibres (gpu/emulator.cpp, EMULATOR).
//
// STANDIN says how it fails: "no driver", "hang", "error", "crash" or "wrong" (a bit of the first seed's θ), the last four
// from the STANDIN_AFTER-th launch of training of a process on; "hang at once": before it says what GPUs there are;
// "no context by MPS": with a daemon's variable.
// STANDIN_SHARED: bytes of shared memory of a block, in place of an H100's.
// STANDIN_GPUS: there are so many, of an H100's size, for plans (run --dry-run).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>

static bool fails(const char* how) {
    const char* mode = std::getenv("STANDIN");
    return mode && !std::strcmp(mode, how);
}
extern "C" int launches;
int launches = 0;
static bool fails_now(const char* how) {
    const char* after = std::getenv("STANDIN_AFTER");
    return fails(how) && launches > (after ? std::atoi(after) : 0);
}

static int shared() {
    const char* bytes = std::getenv("STANDIN_SHARED");
    return bytes ? std::atoi(bytes) : 227 << 10;
}

struct Program {
    std::string text, result, log;
    std::map<std::string, std::string> headers;
};
struct Function {
    void* library;
    std::string name;
};

extern "C" {
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int* to) { return *to = 2, 0; }
int nvrtcGetSupportedArchs(int* to) { return to[0] = 75, to[1] = 90, 0; }
int nvrtcCreateProgram(Program** to, const char* text, const char*, int count, const char** texts, const char** names) {
    *to = new Program{text, "", "", {}};
    for (int n = 0; n < count; n++) (*to)->headers[names[n]] = texts[n];
    return 0;
}
int nvrtcCompileProgram(Program* p, int, const char**) {
    char folder[] = "/tmp/standin-XXXXXX";
    if (!mkdtemp(folder)) return 1;
    const std::string at = std::string(folder) + "/";
    for (const auto& [name, text] : p->headers)
        if (name.find(".h") != std::string::npos) std::ofstream(at + name) << text;
    std::ofstream(at + "main.cpp") << "#define FIBRES 1\n" << p->text << std::ifstream(EMULATOR).rdbuf();
    const std::string built = at + "engine.so", errors = at + "errors";
    const std::string command = "g++ -std=c++17 -O2 -march=native -shared -fPIC -w -ffp-contract=off -fno-math-errno -I" + at +
                                " " + at + "main.cpp -o " + built + " 2> " + errors;
    if (std::system(command.c_str())) {
        std::ifstream file(errors);
        return p->log.assign(std::istreambuf_iterator<char>(file), {}), 6;
    }
    p->result = built;
    return 0;
}
int nvrtcGetProgramLogSize(Program* p, size_t* to) { return *to = p->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* p, char* to) { return std::strcpy(to, p->log.c_str()), 0; }
int nvrtcGetCUBINSize(Program* p, size_t* to) { return *to = p->result.size() + 1, 0; }
int nvrtcGetCUBIN(Program* p, char* to) { return std::strcpy(to, p->result.c_str()), 0; }
int nvrtcDestroyProgram(Program** p) { return delete *p, 0; }

int cuInit(unsigned) {
    while (fails("hang at once")) sleep(1);
    return fails("no driver") ? 999 : 0;
}
int cuDriverGetVersion(int* to) { return *to = 13000, 0; }
int cuDeviceGetCount(int* to) {
    const char* count = std::getenv("STANDIN_GPUS");
    return *to = count ? std::atoi(count) : 1, 0;
}
int cuDeviceGet(int* to, int) { return *to = 0, 0; }
int cuDeviceGetName(char* to, int size, int) { return std::strncpy(to, "Stand-in", size), 0; }
int cuDeviceGetAttribute(int* to, int which, int) {
    const bool counts = std::getenv("STANDIN_GPUS");
    return *to = which == 13 ? 1980000 : which == 16 ? (counts ? 132 : 1) : which == 75 ? 9 : which == 76 ? 0 : shared(), 0;
}
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return 0; }
int cuDevicePrimaryCtxRetain(void** to, int) {
    return *to = (void*)1, fails("no context by MPS") && std::getenv("CUDA_MPS_PIPE_DIRECTORY") ? 805 : 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(uint64_t* to, size_t size) {
    void* made = std::malloc(size);
    std::memset(made, 0xff, size);
    return *to = (uint64_t)made, 0;
}
int cuMemFree_v2(uint64_t at) { return std::free((void*)at), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) { return std::memcpy((void*)to, from, size), 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) { return std::memcpy(to, (void*)from, size), 0; }
int cuModuleLoadData(void** to, const char* image) { return *to = dlopen(image, RTLD_NOW), *to ? 0 : 200; }
int cuModuleGetFunction(Function** to, void* module, const char* name) { return *to = new Function{module, name}, 0; }
int cuFuncSetAttribute(Function*, int, int) { return 0; }
int cuFuncGetAttribute(int* to, int, Function*) { return *to = 0, 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* to, Function*, int, size_t) { return *to = 2, 0; }
int cuGetErrorName(int code, const char** to) {
    return *to = code == 999 ? "CUDA_ERROR_UNKNOWN" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR", 0;
}
int cuLaunchKernel(Function* f, int, int, int, int, int, int, int, void*, void** its, void*) {
    const bool trains = f->name == "engine_train";
    launches += trains;
    while (trains && fails_now("hang")) sleep(1);
    if (trains && fails_now("error")) return 719;
    if (trains && fails_now("crash")) std::abort();
    void* work = dlsym(f->library, ("emulated" + f->name.substr(6)).c_str());
    if (!trains && f->name == "engine_sizes") return ((void (*)(int32_t*))work)(*(int32_t**)its[0]), 0;
    const int parted = trains ? ((int (*)(void*, void*, int))work)(its[0], its[1], *(int*)its[2])
                              : ((int (*)(void*, void*, void*))work)(its[0], its[1], its[2]);
    if (trains && fails_now("wrong")) **(int32_t**)its[1] ^= 1;  // of the first number of the first row
    return parted >= 0 ? 719 : 0;
}
}
