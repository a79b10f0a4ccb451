# Compares imp with OpenVINO GenAI. llama.cpp writes the model file for both engines.
source "$(dirname "$0")/../lib.sh"

apart openvino "openvino-genai>=2026.4" -- tests/bench/test_compare_openvino.py --all
