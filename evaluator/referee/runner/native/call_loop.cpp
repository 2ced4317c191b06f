// One call of a model between two messages: what a runner does while the clock of a call runs, without Python.
//
// The messages are those of protocol/call_messages.py, in the frames of protocol/framing.py. What has another form is
// left to Python. Each step here is one that a candidate could otherwise do faster than the referee's code does it.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <unistd.h>

namespace {

constexpr Py_ssize_t GO_BYTES = 4 + 8 + 1;  // length of the frame, seed, how many outputs are kept
constexpr unsigned KEEP_ALL = 255;
constexpr size_t AT_ONCE = 64 * 1024;
constexpr unsigned char MARK = 1;

std::array<int, 256> codes;  // of the answer's types, by torch's numbers of them; -1 has none

void put(std::string& bytes, uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
}

uint64_t number(const char* bytes, int width) {
    uint64_t value = 0;
    for (int at = 0; at < width; ++at) value = value << 8 | static_cast<unsigned char>(bytes[at]);
    return value;
}

bool send_all(int fd, const char* bytes, size_t left) {
    while (left > 0) {
        ssize_t sent;
        Py_BEGIN_ALLOW_THREADS
        sent = write(fd, bytes, left);
        Py_END_ALLOW_THREADS
        if (sent < 0 && errno == EINTR) {
            if (PyErr_CheckSignals() < 0) return false;
            continue;
        }
        if (sent < 0) {
            PyErr_SetFromErrno(PyExc_OSError);
            return false;
        }
        bytes += sent;
        left -= static_cast<size_t>(sent);
    }
    return true;
}

// Add a tensor to an answer. False if it is none, or one that the answer's form does not hold.
bool add_tensor(std::string& answer, PyObject* value) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != THPVariableClass) return false;
    const at::Tensor& tensor = THPVariable_Unpack(value);
    if (tensor.layout() != at::kStrided || !tensor.is_cpu() || tensor.is_conj() || tensor.is_neg()) return false;
    const int code = codes[static_cast<unsigned char>(tensor.scalar_type())];
    if (code < 0) return false;
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    put(answer, reinterpret_cast<uint64_t>(tensor.data_ptr()), 8);
    put(answer, static_cast<uint64_t>(code), 1);
    put(answer, sizes.size(), 1);
    for (const int64_t size : sizes) put(answer, static_cast<uint64_t>(size), 8);
    for (const int64_t stride : strides) put(answer, static_cast<uint64_t>(stride), 8);
    return true;
}

// The frame of the answer that a call has returned `value`; empty if it has another form.
std::string framed_answer(PyObject* value) {
    std::string answer;
    answer.reserve(256);
    put(answer, 0, 4);  // its length, once it is known
    put(answer, MARK, 1);
    const bool is_tuple = PyTuple_CheckExact(value);
    if (is_tuple || PyList_CheckExact(value)) {
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
        if (count < 1 || count > 0xFFFF) return {};
        put(answer, is_tuple ? 1 : 2, 1);
        put(answer, static_cast<uint64_t>(count), 2);
        for (Py_ssize_t at = 0; at < count; ++at)
            if (!add_tensor(answer, PySequence_Fast_GET_ITEM(value, at))) return {};
    } else {
        put(answer, 0, 1);
        put(answer, 1, 2);
        if (!add_tensor(answer, value)) return {};
    }
    std::string length;
    put(length, answer.size() - 4, 4);
    return answer.replace(0, 4, length);
}

PyObject* answered(int fd, PyObject* value, PyObject* kept) {
    std::string answer;
    try {
        answer = framed_answer(value);
    } catch (const std::exception&) {
        return PyTuple_Pack(1, value);  // Python says it in fewer words
    }
    if (answer.empty()) return PyTuple_Pack(1, value);
    if (PyList_Append(kept, value) < 0 || !send_all(fd, answer.data(), answer.size())) return nullptr;
    Py_RETURN_NONE;
}

PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != 5 || !PyBytes_Check(given[1]) || !PyTuple_Check(given[3]) || !PyList_Check(given[4])) {
        PyErr_SetString(PyExc_TypeError, "call(fd, ready: bytes, model, arguments: tuple, kept: list)");
        return nullptr;
    }
    const long fd = PyLong_AsLong(given[0]);
    if (fd < 0) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "fd: %ld", fd);
    PyObject* kept = given[4];
    if (!send_all(static_cast<int>(fd), PyBytes_AS_STRING(given[1]), static_cast<size_t>(PyBytes_GET_SIZE(given[1]))))
        return nullptr;
    char go[AT_ONCE];
    ssize_t got;
    do {
        Py_BEGIN_ALLOW_THREADS
        got = read(static_cast<int>(fd), go, AT_ONCE);
        Py_END_ALLOW_THREADS
        if (got < 0 && (errno != EINTR || PyErr_CheckSignals() < 0))
            return PyErr_Occurred() ? nullptr : PyErr_SetFromErrno(PyExc_OSError);
    } while (got < 0);
    const unsigned keep = got == GO_BYTES ? static_cast<unsigned char>(go[GO_BYTES - 1]) : KEEP_ALL;
    if (keep == KEEP_ALL || number(go, 4) != GO_BYTES - 4) return PyBytes_FromStringAndSize(go, got);
    const Py_ssize_t more = PyList_GET_SIZE(kept) - static_cast<Py_ssize_t>(keep);
    if (more > 0 && PyList_SetSlice(kept, 0, more, nullptr) < 0) return nullptr;
    try {
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        const std::lock_guard<std::mutex> lock(generator.mutex());
        generator.get<at::CPUGeneratorImpl>()->set_current_seed(number(go + 4, 8));
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
    PyObject* value = PyObject_Call(given[2], given[3], nullptr);
    if (value == nullptr) return nullptr;
    PyObject* result = answered(static_cast<int>(fd), value, kept);
    Py_DECREF(value);
    return result;
}

PyObject* set_codes(PyObject*, PyObject* by_type) {
    codes.fill(-1);
    PyObject *dtype, *code;
    Py_ssize_t at = 0;
    while (PyDict_Next(by_type, &at, &dtype, &code)) {
        if (!THPDtype_Check(dtype)) return PyErr_Format(PyExc_TypeError, "%R is no dtype", dtype);
        const long told = PyLong_AsLong(code);
        if (told < 0 || told > 255) return PyErr_Format(PyExc_ValueError, "%R is no code of a dtype", code);
        codes[static_cast<unsigned char>(reinterpret_cast<THPDtype*>(dtype)->scalar_type)] = static_cast<int>(told);
    }
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL,
     "Say that a call may begin, wait for its go, call the model, answer. Returns None once it has answered; the bytes\n"
     "of a go of another form; or a tuple that holds the value, if the answer has another form."},
    {"set_codes", set_codes, METH_O, "Set the number that stands for each dtype in answers."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "call_loop", "One call of a model between two messages.", -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_call_loop() {
    codes.fill(-1);
    return PyModule_Create(&module);
}
