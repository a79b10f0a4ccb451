# Installs the packages with which the parity tests compare, and builds llama.cpp.
source "$(dirname "$0")/../lib.sh"

# Only these checks pin PyTorch, to a build without CUDA; the project accepts any recent version. Python compiles what is
# imported of these thousands of files; compiling all of them here takes longer.
pip install --quiet --no-compile "torch==2.13.0"
pip install --quiet --no-compile "transformers>=4.56,<6" "safetensors>=0.5" "sentence-transformers>=5.1"

# llama.cpp without its kernels for AMX, which crash on some shapes (its issue 20824). pip would take a wheel from its
# cache whatever the flags are, so this builds the source. In a folder of this tree, for ccache. It builds the library
# alone: the code that llama.cpp's programs share takes two fifths of the time of a build.
rm -rf "$llama_cpp"
mkdir -p "$llama_cpp/source"
pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$llama_cpp" "llama-cpp-python>=0.3.16"
tar -xzf "$llama_cpp"/llama_cpp_python-*.tar.gz -C "$llama_cpp/source" --strip-components=1
sed -i 's/set(LLAMA_BUILD_COMMON ON /set(LLAMA_BUILD_COMMON OFF /' "$llama_cpp/source/CMakeLists.txt"
without_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
CFLAGS="$without_amx" CXXFLAGS="$without_amx" CMAKE_ARGS="-DGGML_NATIVE=ON -DMTMD_VIDEO=OFF \
  -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache" \
  pip wheel --quiet --no-cache-dir --no-deps --config-settings=build-dir="$PWD/$llama_cpp/build" \
  --wheel-dir "$llama_cpp" "./$llama_cpp/source"
pip install --quiet "$llama_cpp"/llama_cpp_python-*.whl
python -c "import llama_cpp; exit(b'AMX' in llama_cpp.llama_print_system_info())"
