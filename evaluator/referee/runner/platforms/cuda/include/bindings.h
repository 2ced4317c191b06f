// Functions of an extension as Python calls them, for the types that extensions of kernels pass. pybind11 takes two thirds
// as long to compile as all else of an extension; a source that needs more of it is compiled with it instead, as names and
// types that are not here are errors.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

// As torch/csrc/autograd/python_variable.h has them, which brings pybind11. So has it `Convert<at::Tensor>::Layout`.
extern __attribute__((visibility("default"))) PyObject* THPVariableClass;
__attribute__((visibility("default"))) PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace cuh {

// How a value comes from Python and goes there. `from` says whether it could, with no error of Python's left; `Held` is
// what keeps an argument during the call.
template <class T>
struct Convert;

template <class T>
using HeldOf = typename Convert<T>::Held;

struct PythonError {};  // one is set

inline PyObject* checked(PyObject* made) {
  if (!made) throw PythonError();
  return made;
}

inline bool passed(bool done) {
  if (!done) PyErr_Clear();
  return done;
}

template <>
struct Convert<at::Tensor> {
  using Held = at::Tensor;
  static constexpr const char* name = "a tensor";
  struct Layout {  // of a tensor in Python
    PyObject_HEAD
    at::Tensor tensor;
  };
  static bool from(PyObject* given, Held& held) {
    if (PyObject_IsInstance(given, THPVariableClass) != 1) return passed(false);
    held = reinterpret_cast<Layout*>(given)->tensor;
    return true;
  }
  static PyObject* to(const at::Tensor& value) { return checked(THPVariable_Wrap(value)); }
};

template <>
struct Convert<bool> {
  using Held = bool;
  static constexpr const char* name = "a bool";
  static bool from(PyObject* given, Held& held) {
    const bool has = given == Py_None || (Py_TYPE(given)->tp_as_number && Py_TYPE(given)->tp_as_number->nb_bool);
    const int truth = has ? PyObject_IsTrue(given) : -1;
    held = truth == 1;
    return passed(truth >= 0);
  }
  static PyObject* to(bool value) { return PyBool_FromLong(value); }
};

template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, char>)
struct Convert<T> {
  using Held = T;
  static constexpr const char* name = std::is_signed_v<T> ? "an int of its size" : "an int of its size from 0";
  static bool from(PyObject* given, Held& held) {
    if (PyFloat_Check(given)) return false;
    PyObject* number = PyIndex_Check(given) ? PyNumber_Index(given) : PyNumber_Long(given);
    if (!number) return passed(false);
    bool fits;
    if constexpr (std::is_signed_v<T>) {
      const long long value = PyLong_AsLongLong(number);
      fits = passed(!PyErr_Occurred()) && value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
      held = static_cast<T>(value);
    } else {
      const unsigned long long value = PyLong_AsUnsignedLongLong(number);
      fits = passed(!PyErr_Occurred()) && value <= std::numeric_limits<T>::max();
      held = static_cast<T>(value);
    }
    Py_DECREF(number);
    return fits;
  }
  static PyObject* to(T value) {
    if constexpr (std::is_signed_v<T>) return checked(PyLong_FromLongLong(value));
    return checked(PyLong_FromUnsignedLongLong(value));
  }
};

template <class T>
  requires std::is_floating_point_v<T>
struct Convert<T> {
  using Held = T;
  static constexpr const char* name = "a float";
  static bool from(PyObject* given, Held& held) {
    held = static_cast<T>(PyFloat_AsDouble(given));
    return passed(!PyErr_Occurred());
  }
  static PyObject* to(T value) { return checked(PyFloat_FromDouble(value)); }
};

template <>
struct Convert<std::string> {
  using Held = std::string;
  static constexpr const char* name = "a str";
  static bool from(PyObject* given, Held& held) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(given) ? PyUnicode_AsUTF8AndSize(given, &size) : nullptr;
    if (text) held.assign(text, static_cast<size_t>(size));
    return passed(text != nullptr);
  }
  static PyObject* to(const std::string& value) {
    return checked(PyUnicode_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size())));
  }
};

template <class T>
struct Convert<std::optional<T>> {
  using Held = std::optional<T>;
  static constexpr const char* name = Convert<T>::name;
  static bool from(PyObject* given, Held& held) {
    held.reset();
    return given == Py_None || Convert<T>::from(given, held.emplace());
  }
  static PyObject* to(const std::optional<T>& value) {
    return value ? Convert<T>::to(*value) : Py_NewRef(Py_None);
  }
};

template <class T>
struct Convert<std::vector<T>> {
  using Held = std::vector<T>;
  static constexpr const char* name = "a list";
  static bool from(PyObject* given, Held& held) {
    held.clear();
    if (!PyList_Check(given) && !PyTuple_Check(given)) return false;  // also torch.Size
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(given); i++) {
      T value{};
      if (!Convert<T>::from(PySequence_Fast_GET_ITEM(given, i), value)) return false;
      held.push_back(std::move(value));
    }
    return true;
  }
  static PyObject* to(const std::vector<T>& values) {
    PyObject* list = checked(PyList_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; i < values.size(); i++)
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), Convert<T>::to(values[i]));
    return list;
  }
};

template <class T>
struct Convert<c10::ArrayRef<T>> {  // an argument alone: what it refers to must be kept
  using Held = std::vector<T>;
  static constexpr const char* name = "a list";
  static bool from(PyObject* given, Held& held) { return Convert<std::vector<T>>::from(given, held); }
};

template <class... T>
struct Convert<std::tuple<T...>> {  // what is returned alone
  static PyObject* to(const std::tuple<T...>& values) {
    PyObject* made = checked(PyTuple_New(sizeof...(T)));
    Py_ssize_t at = 0;
    std::apply([&](const T&... each) { (PyTuple_SET_ITEM(made, at++, Convert<T>::to(each)), ...); }, values);
    return made;
  }
};

template <class A, class B>
struct Convert<std::pair<A, B>> {
  static PyObject* to(const std::pair<A, B>& values) {
    return Convert<std::tuple<A, B>>::to({values.first, values.second});
  }
};

// A function and what Python knows of it, for as long as the process lives.
template <class R, class... A>
struct Bound {
  std::string name, says;
  R (*function)(A...);
  PyMethodDef method;

  template <class Argument, class Held>
  static decltype(auto) pass(Held& held) {
    if constexpr (std::is_lvalue_reference_v<Argument>) return (held);
    else return std::move(held);
  }

  template <size_t... I>
  PyObject* call(PyObject* given, std::index_sequence<I...>) const {
    std::tuple<HeldOf<std::decay_t<A>>...> held;
    const Py_ssize_t count = PyTuple_GET_SIZE(given);
    if (count != static_cast<Py_ssize_t>(sizeof...(A))) {
      PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments: it takes %d and is given %d", name.c_str(),
                   static_cast<int>(sizeof...(A)), static_cast<int>(count));
      return nullptr;
    }
    const auto take = [&](auto number, auto* type, auto& kept) {
      PyObject* each = PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(number));
      using To = Convert<std::remove_pointer_t<decltype(type)>>;
      if (To::from(each, kept)) return true;
      PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments: argument %d is of type %s; it takes %s",
                   name.c_str(), static_cast<int>(number) + 1, Py_TYPE(each)->tp_name, To::name);
      return false;
    };
    if (!(take(I, static_cast<std::decay_t<A>*>(nullptr), std::get<I>(held)) && ...)) return nullptr;
    if constexpr (std::is_void_v<R>) {
      function(pass<A>(std::get<I>(held))...);
      return Py_NewRef(Py_None);
    } else {
      return Convert<std::decay_t<R>>::to(function(pass<A>(std::get<I>(held))...));
    }
  }

  static PyObject* called(PyObject* self, PyObject* given) {
    const auto* bound = static_cast<const Bound*>(PyCapsule_GetPointer(self, nullptr));
    try {
      return bound->call(given, std::index_sequence_for<A...>());
    } catch (const PythonError&) {
    } catch (const c10::Error& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (...) {
      PyErr_SetString(PyExc_RuntimeError, "an exception that is none of C++'s own");
    }
    return nullptr;
  }
};

// What PYBIND11_MODULE gives its body.
struct Module {
  PyObject* object;

  template <class R, class... A>
  void add(const char* name, R (*function)(A...), const char* says) {
    auto* bound = new Bound<R, A...>{name, says, function, {}};
    bound->method = {bound->name.c_str(), &Bound<R, A...>::called, METH_VARARGS, bound->says.c_str()};
    PyObject* self = checked(PyCapsule_New(bound, nullptr, nullptr));
    PyObject* made = PyCFunction_New(&bound->method, self);
    Py_DECREF(self);
    if (PyModule_AddObject(object, name, checked(made))) throw PythonError();
  }
  template <class F>
  Module& def(const char* name, F&& function, const char* says = "") {
    add(name, +function, says);
    return *this;
  }
};

inline PyObject* module_of(PyModuleDef* definition, void (*body)(Module&)) {
  PyObject* made = PyModule_Create(definition);
  if (!made) return nullptr;
  try {
    Module given{made};
    body(given);
    return made;
  } catch (const PythonError&) {
    Py_DECREF(made);
    return nullptr;
  }
}

}  // namespace cuh

#define CUH_TEXT_OF(name) #name
#define CUH_MODULE(name, given)                                                                           \
  static void cuh_module_##name(cuh::Module&);                                                            \
  extern "C" __attribute__((visibility("default"))) PyObject* PyInit_##name() {                           \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, CUH_TEXT_OF(name), nullptr, -1, nullptr,      \
                                     nullptr, nullptr, nullptr, nullptr};                                 \
    return cuh::module_of(&definition, &cuh_module_##name);                                               \
  }                                                                                                       \
  static void cuh_module_##name([[maybe_unused]] cuh::Module& given)
#define PYBIND11_MODULE(name, given) CUH_MODULE(name, given)
