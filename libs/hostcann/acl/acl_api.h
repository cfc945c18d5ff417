// The part of CANN's C interface that hostcann exports, as prototypes of our own.
//
// Written from the public API reference and from what the torch_npu wheel calls. Enumerations are int32_t and handles are void*: the
// same on the binary level. Every function returns 0 or an error code (error.h) unless said otherwise.
#ifndef LIBS_HOSTCANN_ACL_ACL_API_H_
#define LIBS_HOSTCANN_ACL_ACL_API_H_

#include <cstddef>
#include <cstdint>

extern "C" {

using aclError = int32_t;

struct AclMemLocation {
  uint32_t id;
  int32_t type;  // 0 host, 1 device, 2 unregistered
};
struct AclPointerAttributes {
  AclMemLocation location;
  uint32_t page_size;
  uint32_t reserved[4];
};
struct AclPhysicalProperties {
  int32_t handle_type;
  int32_t allocation_type;
  int32_t memory_attribute;
  AclMemLocation location;
  uint64_t reserved;
};
struct AclMemPoolProperties {
  int32_t allocation_type;
  int32_t handle_type;
  AclMemLocation location;
  size_t max_bytes;  // 0: no limit
  unsigned char reserved[32];
};
struct AclMallocConfig {
  void* attributes;
  size_t num_attributes;
};
struct AclPackageVersion {
  char version[128];
  char major[64];
  char minor[64];
  char release[64];
  char patch[64];
  char reserved[128];
};
struct AclUtilization {
  int32_t cube, vector, aicpu, memory;  // per cent
  void* extended;
};
struct AclMemUsage {
  char name[32];
  uint64_t current_bytes;
  uint64_t peak_bytes;
  size_t reserved[8];
};
struct AclUuid {
  char bytes[16];
};
struct AclCopyBatchAttributes {
  AclMemLocation dst;
  AclMemLocation src;
  uint8_t reserved[16];
};
struct AclStreamAttribute {
  uint32_t values[4];
};
using AclCallback = void (*)(void* user_data);

// ---- process, versions, errors (api_process.cc)
aclError aclInit(const char* config_path);
aclError aclFinalize();
const char* aclGetRecentErrMsg();
aclError aclrtGetLastError(int32_t level);
aclError aclrtPeekAtLastError(int32_t level);
void aclAppLog(int32_t level, const char* function, const char* file, uint32_t line, const char* format, ...);
aclError aclsysGetCANNVersion(int32_t package, AclPackageVersion* version);
aclError aclsysGetVersionStr(char* package, char* version);
const char* JumarDescribeConfig();  // ours: JSON, see config.h
void JumarTagMemory(const char* tag);  // ours: whose is the device memory that this thread takes from now on; "" ends it (memory.h)
const char* aclrtGetSocName();
aclError aclGetCannAttributeList(const int32_t** attributes, size_t* count);
aclError aclGetCannAttribute(int32_t attribute, int32_t* value);
aclError aclGetDeviceCapability(uint32_t device, int32_t what, int64_t* value);
aclError aclrtCtxSetSysParamOpt(int32_t option, int64_t value);
aclError aclrtCtxGetSysParamOpt(int32_t option, int64_t* value);
aclError aclrtSetSysParamOpt(int32_t option, int64_t value);
aclError aclrtGetSysParamOpt(int32_t option, int64_t* value);
aclError aclmdlInitDump();
aclError aclmdlSetDump(const char* path);
aclError aclmdlFinalizeDump();

// ---- devices and contexts (api_device.cc)
aclError aclrtGetDeviceCount(uint32_t* count);
aclError aclrtSetDevice(int32_t device);
aclError aclrtResetDevice(int32_t device);
aclError aclrtResetDeviceForce(int32_t device);
aclError aclrtGetDevice(int32_t* device);
aclError aclrtGetRunMode(int32_t* mode);
aclError aclrtSynchronizeDevice();
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms);
aclError aclrtCreateContext(void** context, int32_t device);
aclError aclrtDestroyContext(void* context);
aclError aclrtSetCurrentContext(void* context);
aclError aclrtGetCurrentContext(void** context);
aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active);
aclError aclrtCtxGetCurrentDefaultStream(void** stream);
aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer);
aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags);
aclError aclrtDeviceDisablePeerAccess(int32_t peer);
aclError aclrtGetDeviceInfo(uint32_t device, int32_t attribute, int64_t* value);
aclError aclrtGetDeviceUtilizationRate(int32_t device, AclUtilization* utilization);
aclError aclrtDeviceGetUuid(int32_t device, AclUuid* uuid);
aclError aclrtDeviceGetBareTgid(int32_t* pid);
aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logic);
aclError aclrtSetDeviceSatMode(int32_t mode);
aclError aclrtGetDeviceSatMode(int32_t* mode);
aclError aclrtSetOpWaitTimeout(uint32_t seconds);
aclError aclrtSetOpExecuteTimeOut(uint32_t seconds);
aclError aclrtSetOpExecuteTimeOutV2(uint64_t us, uint64_t* actual_us);
aclError aclrtGetDeviceResLimit(int32_t device, int32_t type, uint32_t* value);
aclError aclrtSetDeviceResLimit(int32_t device, int32_t type, uint32_t value);
aclError aclrtResetDeviceResLimit(int32_t device);
aclError aclrtGetStreamResLimit(void* stream, int32_t type, uint32_t* value);
aclError aclrtSetStreamResLimit(void* stream, int32_t type, uint32_t value);
aclError aclrtResetStreamResLimit(void* stream);
aclError aclrtUseStreamResInCurrentThread(void* stream);
aclError aclrtUnuseStreamResInCurrentThread(void* stream);
aclError aclrtGetResInCurrentThread(int32_t type, uint32_t* value);

// ---- streams, callbacks (api_stream.cc)
aclError aclrtCreateStream(void** stream);
aclError aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t flags);
aclError aclrtDestroyStream(void* stream);
aclError aclrtDestroyStreamForce(void* stream);
aclError aclrtSynchronizeStream(void* stream);
aclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t timeout_ms);
aclError aclrtStreamQuery(void* stream, int32_t* status);
aclError aclrtStreamGetId(void* stream, int32_t* id);
aclError aclrtStreamGetPriority(void* stream, uint32_t* priority);
aclError aclrtStreamGetFlags(void* stream, uint32_t* flags);
aclError aclrtStreamAbort(void* stream);
aclError aclrtGetStreamAvailableNum(uint32_t* count);
aclError aclrtSetStreamFailureMode(void* stream, uint64_t mode);
aclError aclrtSetStreamAttribute(void* stream, int32_t attribute, AclStreamAttribute* value);
aclError aclrtGetStreamAttribute(void* stream, int32_t attribute, AclStreamAttribute* value);
aclError aclrtSetStreamOverflowSwitch(void* stream, uint32_t flag);
aclError aclrtGetStreamOverflowSwitch(void* stream, uint32_t* flag);
aclError aclrtSubscribeReport(uint64_t thread, void* stream);
aclError aclrtUnSubscribeReport(uint64_t thread, void* stream);
aclError aclrtProcessReport(int32_t timeout_ms);
aclError aclrtLaunchCallback(AclCallback callback, void* user_data, int32_t block, void* stream);
aclError aclrtLaunchHostFunc(void* stream, AclCallback callback, void* user_data);

// ---- events (api_event.cc)
aclError aclrtCreateEvent(void** event);
aclError aclrtCreateEventWithFlag(void** event, uint32_t flags);
aclError aclrtCreateEventExWithFlag(void** event, uint32_t flags);
aclError aclrtDestroyEvent(void* event);
aclError aclrtRecordEvent(void* event, void* stream);
aclError aclrtResetEvent(void* event, void* stream);
aclError aclrtStreamWaitEvent(void* stream, void* event);
aclError aclrtSynchronizeEvent(void* event);
aclError aclrtSynchronizeEventWithTimeout(void* event, int32_t timeout_ms);
aclError aclrtQueryEventStatus(void* event, int32_t* status);
aclError aclrtQueryEventWaitStatus(void* event, int32_t* status);
aclError aclrtEventElapsedTime(float* ms, void* start, void* end);
aclError aclrtEventGetTimestamp(void* event, uint64_t* us);
aclError aclrtValueWrite(void* address, uint64_t value, uint32_t flags, void* stream);
aclError aclrtValueWait(void* address, uint64_t value, uint32_t condition, void* stream);

// ---- notifies (api_notify.cc)
aclError aclrtCreateNotify(void** notify, uint64_t flags);
aclError aclrtDestroyNotify(void* notify);
aclError aclrtRecordNotify(void* notify, void* stream);
aclError aclrtWaitAndResetNotify(void* notify, void* stream, uint32_t timeout_ms);
aclError aclrtGetNotifyId(void* notify, uint32_t* id);
aclError aclrtNotifyBatchReset(void** notifies, size_t count);
aclError aclrtNotifyGetExportKey(void* notify, char* key, size_t length, uint64_t flags);
aclError aclrtNotifyImportByKey(void** notify, const char* key, uint64_t flags);
aclError aclrtNotifySetImportPid(void* notify, int32_t* pids, size_t count);

// ---- memory (api_memory.cc)
aclError aclrtMalloc(void** pointer, size_t bytes, int32_t policy);
aclError aclrtMallocAlign32(void** pointer, size_t bytes, int32_t policy);
aclError aclrtMallocCached(void** pointer, size_t bytes, int32_t policy);
aclError aclrtMallocWithCfg(void** pointer, size_t bytes, int32_t policy, AclMallocConfig* config);
aclError aclrtFree(void* pointer);
aclError aclrtMallocHost(void** pointer, size_t bytes);
aclError aclrtMallocHostWithCfg(void** pointer, uint64_t bytes, AclMallocConfig* config);
aclError aclrtFreeHost(void* pointer);
aclError aclrtHostRegister(void* pointer, uint64_t bytes, int32_t type, void** device_pointer);
aclError aclrtHostRegisterV2(void* pointer, uint64_t bytes, uint32_t flags);
aclError aclrtHostGetDevicePointer(void* host, void** device, uint32_t flags);
aclError aclrtHostUnregister(void* pointer);
aclError aclrtPointerGetAttributes(const void* pointer, AclPointerAttributes* attributes);
aclError aclrtGetMemInfo(int32_t attribute, size_t* free, size_t* total);
aclError aclrtGetMemUsageInfo(int32_t device, AclMemUsage* usage, size_t capacity, size_t* count);
aclError aclrtMemcpy(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind);
aclError aclrtMemcpyAsync(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind, void* stream);
aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind, void* stream);
aclError aclrtMemcpy2d(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int32_t kind);
aclError aclrtMemcpy2dAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int32_t kind,
                            void* stream);
aclError aclrtMemcpyBatch(void** dsts, size_t* dst_bytes, void** srcs, size_t* bytes, size_t count, AclCopyBatchAttributes* attributes,
                          size_t* attribute_indexes, size_t num_attributes, size_t* failed);
aclError aclrtMemcpyBatchAsync(void** dsts, size_t* dst_bytes, void** srcs, size_t* bytes, size_t count,
                               AclCopyBatchAttributes* attributes, size_t* attribute_indexes, size_t num_attributes, size_t* failed,
                               void* stream);
aclError aclrtMemset(void* pointer, size_t capacity, int32_t value, size_t bytes);
aclError aclrtMemsetAsync(void* pointer, size_t capacity, int32_t value, size_t bytes, void* stream);
aclError aclrtMemFlush(void* pointer, size_t bytes);
aclError aclrtMemInvalidate(void* pointer, size_t bytes);
aclError aclrtCmoAsync(void* pointer, size_t bytes, int32_t type, void* stream);

// ---- virtual memory (api_virtual_memory.cc)
aclError aclrtReserveMemAddress(void** address, size_t bytes, size_t alignment, void* expected, uint64_t flags);
aclError aclrtReleaseMemAddress(void* address);
aclError aclrtMallocPhysical(void** handle, size_t bytes, const AclPhysicalProperties* properties, uint64_t flags);
aclError aclrtFreePhysical(void* handle);
aclError aclrtMapMem(void* address, size_t bytes, size_t offset, void* handle, uint64_t flags);
aclError aclrtUnmapMem(void* address);
aclError aclrtMemGetAllocationGranularity(AclPhysicalProperties* properties, int32_t option, size_t* bytes);

// ---- memory pools that streams order (api_memory_pool.cc)
aclError aclrtMemPoolCreate(void** pool, const AclMemPoolProperties* properties);
aclError aclrtMemPoolDestroy(void* pool);
aclError aclrtMemPoolMallocAsync(void** pointer, size_t bytes, void* pool, void* stream);
aclError aclrtMemPoolFreeAsync(void* pointer, void* stream);
aclError aclrtMemPoolTrimTo(void* pool, size_t keep_bytes);
aclError aclrtMemPoolSetAttr(void* pool, int32_t attribute, void* value);
aclError aclrtMemPoolGetAttr(void* pool, int32_t attribute, void* value);

// ---- graphs (api_graph.cc)
aclError aclmdlRICaptureBegin(void* stream, int32_t mode);
aclError aclmdlRICaptureGetInfo(void* stream, int32_t* status, void** graph);
aclError aclmdlRICaptureEnd(void* stream, void** graph);
aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode);
aclError aclmdlRICaptureTaskGrpBegin(void* stream);
aclError aclmdlRICaptureTaskGrpEnd(void* stream, void** group);
aclError aclmdlRICaptureTaskUpdateBegin(void* stream, void* group);
aclError aclmdlRICaptureTaskUpdateEnd(void* stream);
aclError aclmdlRIExecuteAsync(void* graph, void* stream);
aclError aclmdlRIExecute(void* graph, int32_t timeout_ms);
aclError aclmdlRIDestroy(void* graph);
aclError aclmdlRIGetId(void* graph, uint32_t* id);
aclError aclmdlRIDebugPrint(void* graph);
aclError aclmdlRIDebugJsonPrint(void* graph, const char* path, uint32_t flags);

// ---- absent features that the wheel links to; each fails and says what is missing (api_unsupported.cc)
aclError aclrtBinaryLoadFromData(const void* data, size_t bytes, const void* options, void** binary);
aclError aclrtBinaryGetFunction(void* binary, const char* kernel, void** function);
aclError aclrtGetFunctionAddr(void* function, void** cube, void** vector);
aclError aclrtMemExportToShareableHandle(void* handle, int32_t type, uint64_t flags, uint64_t* shareable);
aclError aclrtMemImportFromShareableHandle(uint64_t shareable, int32_t device, void** handle);
aclError aclrtMemSetPidToShareableHandle(uint64_t shareable, int32_t* pids, size_t count);
aclError aclrtIpcMemGetExportKey(void* pointer, size_t bytes, char* key, size_t length, uint64_t flags);
aclError aclrtIpcMemImportByKey(void** pointer, const char* key, uint64_t flags);
aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pids, size_t count);
aclError aclrtIpcMemClose(const char* key);
int32_t rtDevBinaryRegister(const void* binary, void** handle);
int32_t rtFunctionRegister(void* binary, const void* stub, const char* name, const void* function, uint32_t mode);
int32_t rtKernelLaunch(const void* stub, uint32_t blocks, void* args, uint32_t bytes, void* descriptor, void* stream);
int32_t rtGetC2cCtrlAddr(uint64_t* address, uint32_t* length);

// ---- profiler, which collects nothing of the device (api_profiler.cc)
struct AclProfConfig;
struct AclProfStepInfo;
aclError aclprofInit(const char* folder, size_t length);
aclError aclprofFinalize();
AclProfConfig* aclprofCreateConfig(uint32_t* devices, uint32_t count, int32_t metrics, const void* events, uint64_t data_types);
aclError aclprofDestroyConfig(const AclProfConfig* config);
aclError aclprofStart(const AclProfConfig* config);
aclError aclprofStop(const AclProfConfig* config);
AclProfStepInfo* aclprofCreateStepInfo();
aclError aclprofGetStepTimestamp(AclProfStepInfo* step, int32_t tag, void* stream);
void aclprofDestroyStepInfo(AclProfStepInfo* step);
uint64_t MsprofGetHashId(const char* text, size_t length);
int32_t MsprofRegisterCallback(uint32_t module, int32_t (*callback)(uint32_t, void*, uint32_t));
int32_t MsprofReportApi(uint32_t aging, const void* api);
int32_t MsprofReportCompactInfo(uint32_t aging, const void* data, uint32_t length);
int32_t MsprofReportAdditionalInfo(uint32_t aging, const void* data, uint32_t length);
uint64_t MsprofSysCycleTime();

// ---- descriptions for the legacy operator path (api_op.cc); compiling an operator fails (op_compiler.cc)
struct AclTensorDesc;
struct AclDataBuffer;
struct AclOpAttributes;
AclTensorDesc* aclCreateTensorDesc(int32_t type, int num_dims, const int64_t* dims, int32_t format);
void aclDestroyTensorDesc(const AclTensorDesc* desc);
aclError aclSetTensorShape(AclTensorDesc* desc, int num_dims, const int64_t* dims);
aclError aclSetTensorFormat(AclTensorDesc* desc, int32_t format);
aclError aclSetTensorPlaceMent(AclTensorDesc* desc, int32_t placement);
void aclSetTensorDescName(AclTensorDesc* desc, const char* name);
int32_t aclGetTensorDescType(const AclTensorDesc* desc);
int32_t aclGetTensorDescFormat(const AclTensorDesc* desc);
size_t aclGetTensorDescNumDims(const AclTensorDesc* desc);
aclError aclGetTensorDescDimV2(const AclTensorDesc* desc, size_t index, int64_t* size);
AclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes);
aclError aclDestroyDataBuffer(const AclDataBuffer* buffer);
AclOpAttributes* aclopCreateAttr();
void aclopDestroyAttr(const AclOpAttributes* attributes);
aclError aclopSetAttrBool(AclOpAttributes* attributes, const char* name, uint8_t value);
aclError aclopSetAttrInt(AclOpAttributes* attributes, const char* name, int64_t value);
aclError aclopSetAttrFloat(AclOpAttributes* attributes, const char* name, float value);
aclError aclopSetAttrString(AclOpAttributes* attributes, const char* name, const char* value);
aclError aclopSetAttrDataType(AclOpAttributes* attributes, const char* name, int32_t value);
aclError aclopSetAttrListBool(AclOpAttributes* attributes, const char* name, int count, const uint8_t* values);
aclError aclopSetAttrListInt(AclOpAttributes* attributes, const char* name, int count, const int64_t* values);
aclError aclopSetAttrListFloat(AclOpAttributes* attributes, const char* name, int count, const float* values);
aclError aclopSetAttrListListInt(AclOpAttributes* attributes, const char* name, int count, const int* lengths,
                                 const int64_t* const* values);
aclError aclopCompileAndExecute(const char* type, int num_inputs, const AclTensorDesc* const* input_descs,
                                const AclDataBuffer* const* inputs, int num_outputs, const AclTensorDesc* const* output_descs,
                                AclDataBuffer* const* outputs, const AclOpAttributes* attributes, int32_t engine, int32_t compile,
                                const char* path, void* stream);
aclError aclopCompileAndExecuteV2(const char* type, int num_inputs, AclTensorDesc** input_descs, AclDataBuffer** inputs, int num_outputs,
                                  AclTensorDesc** output_descs, AclDataBuffer** outputs, AclOpAttributes* attributes, int32_t engine,
                                  int32_t compile, const char* path, void* stream);
aclError aclSetCompileopt(int32_t option, const char* value);
size_t aclGetCompileoptSize(int32_t option);
aclError aclGetCompileopt(int32_t option, char* value, size_t length);

}  // extern "C"

#endif  // LIBS_HOSTCANN_ACL_ACL_API_H_
