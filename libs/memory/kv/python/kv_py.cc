// jumar_kv: libs/memory/kv for numpy.

#include "libs/memory/kv/python/kv_py.h"

#include <map>
#include <memory>
#include <new>

#include "libs/memory/kv/block_table.h"
#include "libs/memory/kv/copy.h"
#include "libs/memory/kv/hybrid.h"
#include "libs/memory/kv/layouts.h"
#include "libs/memory/kv/rows.h"
#include "libs/memory/kv/slots.h"
#include "libs/memory/kv/transpose.h"

namespace jumar::memory::kv {
namespace {

template <class T>
T Named(const std::map<std::string, T>& names, const char* what, const std::string& name) {
  const auto it = names.find(name);
  if (it != names.end()) return it->second;
  std::string known;
  for (const auto& [key, value] : names) known += (known.empty() ? "" : ", ") + key;
  throw py::value_error(std::string(what) + " \"" + name + "\" is none of " + known);
}
Order OrderOf(const std::string& name) {
  return Named<Order>({{"token", Order::kTokenMajor}, {"head", Order::kHeadMajor}, {"fractal", Order::kFractal}}, "order", name);
}
Element ElementOf(const std::string& name) {
  return Named<Element>({{"bytes", Element::kBytes},
                         {"int8", Element::kInt8},
                         {"e4m3", Element::kE4M3},
                         {"e8m0", Element::kE8M0},
                         {"fp16", Element::kFloat16},
                         {"bf16", Element::kBFloat16},
                         {"fp32", Element::kFloat32}},
                        "element", name);
}

PageLayout Checked(const PageLayout& layout) {
  Unwrap(Validate(layout));
  return layout;
}

int64_t PartIndex(const PageLayout& layout, const py::object& part) {
  if (py::isinstance<py::str>(part)) return Unwrap(FindPart(layout, part.cast<std::string>()));
  if (PyIndex_Check(part.ptr()) == 0) throw py::type_error("part must be a name or a number, not " + std::string(py::repr(part)));
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(part.ptr()));
  const int64_t index = number ? PyLong_AsLongLong(number.ptr()) : -1;
  if (index != -1 || PyErr_Occurred() == nullptr) return index;
  PyErr_Clear();
  throw py::value_error("part " + std::string(py::repr(part)) + " is none of the layout's " + std::to_string(layout.num_parts));
}

// A layout holds no Python object, so a Part may refer to its names: they are literals of layouts.h.
void BindLayouts(py::module_& m) {
  py::class_<Part>(m, "Part", "One part of a page: a row of bytes for each token, in chunks.")
      .def_property_readonly("name", [](const Part& p) { return p.name; })
      .def_property_readonly("element", [](const Part& p) { return std::string(ElementName(p.element)); })
      .def_readonly("heads", &Part::heads)
      .def_readonly("plane", &Part::plane, "Which array of pages: K and V kept apart are planes 0 and 1.")
      .def_readonly("offset", &Part::offset, "Bytes from the page's begin.")
      .def_property_readonly("row_bytes", [](const Part& p) { return p.rows.row_bytes; })
      .def_property_readonly("chunk_bytes", [](const Part& p) { return p.rows.chunk_bytes; })
      .def_property_readonly("chunk_stride", [](const Part& p) { return p.rows.chunk_stride; })
      .def_property_readonly("token_stride", [](const Part& p) { return p.rows.token_stride; });
  py::class_<PageLayout>(m, "PageLayout",
                         "One page (block) of a KV cache: its parts, and where each lies. Made by the functions of this module.")
      .def_property_readonly("name", [](const PageLayout& l) { return l.name; })
      .def_readonly("block_size", &PageLayout::block_size, "Tokens per page.")
      .def_property_readonly("parts", [](const PageLayout& l) { return std::vector<Part>(l.parts.begin(), l.parts.begin() + l.num_parts); })
      .def_property_readonly(
          "page_bytes", [](const PageLayout& l) { return std::vector<int64_t>(l.page_bytes.begin(), l.page_bytes.begin() + l.num_planes); },
          "Of each plane, padding included.")
      .def_property_readonly("block_bytes", &PageLayout::block_bytes, "Over all planes.")
      .def_property_readonly("token_bytes", &PageLayout::token_bytes, "Over all parts, without padding.")
      .def_property_readonly("padding_bytes", &PageLayout::padding_bytes)
      .def(
          "in_pages_of", [](const PageLayout& l, int64_t bytes) { return Checked(InPagesOf(l, bytes)); }, py::arg("bytes"),
          "The same layout in larger pages, for a group of a hybrid model.")
      .def(
          "locate",
          [](const PageLayout& l, int64_t num_blocks, int64_t block, int64_t token, int64_t head, const py::object& part,
             int64_t block_stride) {
            const Location at = Unwrap(Locate(l, num_blocks, {block, token, head, PartIndex(l, part)}, block_stride));
            return std::make_tuple(at.plane, at.offset, at.contiguous);
          },
          py::arg("num_blocks"), py::arg("block"), py::arg("token"), py::arg("head") = 0, py::arg("part") = 0, py::arg("block_stride") = 0,
          "(plane, offset in the plane, contiguous bytes there) of a head's row. ValueError for an index outside its table, KeyError for "
          "an unknown part.")
      .def("__repr__",
           [](const PageLayout& l) {
             return "PageLayout('" + std::string(l.name) + "', block_size=" + std::to_string(l.block_size) +
                    ", block_bytes=" + std::to_string(l.block_bytes()) + ")";
           })
      .def("__str__", &Describe);

  const auto kv_maker = [&](const char* name, PageLayout (*maker)(const KvShape&, Order), const char* doc) {
    m.def(name, [maker](int64_t heads, int64_t head_dim, int64_t block_size, const std::string& order, const std::string& element) {
      return Checked(maker({heads, head_dim, block_size, ElementOf(element)}, OrderOf(order)));
    }, py::arg("heads"), py::arg("head_dim"), py::arg("block_size"), py::arg("order") = "token", py::arg("element") = "bf16", doc);
  };
  kv_maker("separate_kv", &SeparateKv,
           "K and V as two planes. order: 'token' [bs, heads, dim], 'head' [heads, bs, dim] or 'fractal' [heads*dim/c0, bs, c0].");
  kv_maker("joint_kv", &JointKv, "K and V in one page, V behind K.");
  m.def("mla", [](int64_t bs, const std::string& order, const std::string& element, int64_t latent, int64_t rope) {
    return Checked(Mla(bs, OrderOf(order), ElementOf(element), latent, rope));
  }, py::arg("block_size"), py::arg("order") = "token", py::arg("element") = "bf16", py::arg("latent") = 512, py::arg("rope") = 64,
        "Absorbed MLA: latents and rotated keys as two planes.");
  m.def(
      "shared_kv", [](int64_t bs, const std::string& element, int64_t dim) { return Checked(SharedKv(bs, ElementOf(element), dim)); },
      py::arg("block_size"), py::arg("element") = "bf16", py::arg("dim") = 512, "K = V: one row per token.");
  m.def(
      "packed656",
      [](int64_t bs, bool scales_first) {
        return Checked(Packed656(bs, scales_first ? RowOrder::kScalesThenRope : RowOrder::kRopeThenScales));
      },
      py::arg("block_size"), py::arg("scales_first") = false, "512 e4m3, 64 bf16 of rope, 4 fp32 scales; scales_first: FlashMLA's order.");
  m.def(
      "packed640", [](int64_t bs) { return Checked(Packed640(bs)); }, py::arg("block_size"),
      "64 bf16 of rope, 448 e4m3, 7 e8m0 scales, 57 bytes of padding.");
  m.def(
      "split584", [](int64_t bs, int64_t multiple) { return Checked(PageSplit584(bs, multiple)); }, py::arg("block_size"),
      py::arg("page_multiple") = 576,
      "448 e4m3 and 64 bf16 of rope per token, then all scales; FlashMLA pads the page to a multiple of 576 bytes.");
  m.def(
      "indexer_keys",
      [](int64_t bs, const std::string& values, const std::string& scale, int64_t dim) {
        return Checked(IndexerKeys(bs, ElementOf(values), ElementOf(scale), dim));
      },
      py::arg("block_size"), py::arg("values") = "e4m3", py::arg("scale") = "fp32", py::arg("dim") = 128,
      "The lightning indexer's keys, then a scale per token.");
  m.def(
      "compressor_state", [](int64_t bs, int64_t dim, int64_t coff) { return Checked(CompressorState(bs, dim, coff)); },
      py::arg("block_size"), py::arg("dim") = 512, py::arg("coff") = 2, "fp32 [bs, 2 * coff * dim]: kv, then score.");
}

void BindTables(py::module_& m) {
  m.def(
      "slot_mapping",
      [](const py::object& starts, const py::object& positions, const py::array& table, int64_t block_size, int64_t num_blocks,
         int64_t total, int64_t cp_size, int64_t cp_rank, int64_t interleave, int64_t pad) {
        const auto start = Integers<int32_t>(starts, "query_start_loc");
        const auto position = Integers<int64_t>(positions, "positions");
        const auto entries = Integers<int32_t>(table, "block_table");
        if (table.ndim() != 2) throw py::value_error("block_table must be [requests, blocks]");
        const int64_t width = table.shape(1), tokens = total >= 0 ? total : static_cast<int64_t>(position.size());
        py::array_t<int64_t> slots(tokens);
        Unwrap(ComputeSlots({.query_start_loc = start,
                            .positions = position,
                            .block_table = {entries, table.shape(0), width, width},
                            .num_blocks = num_blocks,
                            .block_size = block_size,
                            .context_parallel = {cp_size, cp_rank, interleave},
                            .pad = pad},
                           std::span<int64_t>(slots.mutable_data(), static_cast<size_t>(tokens))));
        return slots;
      },
      py::arg("query_start_loc"), py::arg("positions"), py::arg("block_table"), py::arg("block_size"), py::arg("num_blocks"), py::kw_only(),
      py::arg("total") = -1, py::arg("cp_size") = 1, py::arg("cp_rank") = 0, py::arg("interleave") = 1, py::arg("pad") = -1,
      "int64 [total]: the slot of each token; `pad` for position -1, for a token of another context-parallel rank, and behind the batch's "
      "end.");
  m.def("merge_slots", [](const py::object& slots, int64_t num_slots, int64_t block_size, int64_t max_length) {
    const auto values = Integers<int64_t>(slots, "slots");
    const auto runs = Unwrap(MergeSlots(values, {num_slots, block_size, max_length}));
    py::array_t<int64_t> out({static_cast<py::ssize_t>(runs.size()), py::ssize_t{3}});
    for (size_t i = 0; i < runs.size(); ++i) {
      int64_t* const row = out.mutable_data(static_cast<py::ssize_t>(i), 0);
      row[0] = runs[i].src, row[1] = runs[i].dst, row[2] = runs[i].length;
    }
    return out;
  }, py::arg("slots"), py::arg("num_slots"), py::arg("block_size") = 0, py::arg("max_length") = 0,
        "int64 [runs, 3]: (first token, first slot, length) of slots that follow each other; -1 is skipped.");

  py::class_<BlockTable>(m, "BlockTable", "Which blocks hold a request's tokens: rows of at most max_blocks, entries in [0, num_blocks).")
      .def(py::init([](int64_t max_requests, int64_t max_blocks, int64_t num_blocks) {
             try {
               return std::make_unique<BlockTable>(Unwrap(BlockTable::Create({max_requests, max_blocks, num_blocks})));
             } catch (const std::bad_alloc&) {
               Unwrap(absl::ResourceExhaustedError("block table for " + std::to_string(max_requests) + " requests of " +
                                                  std::to_string(max_blocks) + " blocks: the host has no memory for it"));
               throw;
             }
           }),
           py::arg("max_requests"), py::arg("max_blocks"), py::arg("num_blocks"))
      .def(
          "append", [](BlockTable& t, int64_t row, const py::object& blocks) { Unwrap(t.Append(row, Integers<int32_t>(blocks, "blocks"))); },
          py::arg("row"), py::arg("blocks"))
      .def(
          "assign", [](BlockTable& t, int64_t row, const py::object& blocks) { Unwrap(t.Assign(row, Integers<int32_t>(blocks, "blocks"))); },
          py::arg("row"), py::arg("blocks"))
      .def(
          "truncate", [](BlockTable& t, int64_t row, int64_t count) { Unwrap(t.Truncate(row, count)); }, py::arg("row"), py::arg("count"))
      .def(
          "move", [](BlockTable& t, int64_t from, int64_t to) { Unwrap(t.Move(from, to)); }, py::arg("source"), py::arg("destination"))
      .def(
          "swap", [](BlockTable& t, int64_t a, int64_t b) { Unwrap(t.Swap(a, b)); }, py::arg("a"), py::arg("b"))
      .def(
          "row",
          [](const BlockTable& t, int64_t row) {
            const auto blocks = Unwrap(t.Slice(row, 0, Unwrap(t.Count(row))));
            return Array(std::vector<int32_t>(blocks.begin(), blocks.end()));
          },
          py::arg("row"), "int32 [count], a copy.")
      .def(
          "gather",
          [](const BlockTable& t, const py::object& rows, int64_t width) {
            const auto which = Integers<int64_t>(rows, "rows");
            if (width < 0 || width > std::max<int64_t>(t.options().max_blocks, 1) * 64) {
              throw py::value_error("width = " + std::to_string(width) + " is out of range");
            }
            py::array_t<int32_t> out({static_cast<py::ssize_t>(which.size()), static_cast<py::ssize_t>(width)});
            Unwrap(t.Gather(which, std::span<int32_t>(out.mutable_data(), static_cast<size_t>(out.size())), width));
            return out;
          },
          py::arg("rows"), py::arg("width"), "int32 [rows, width]: those rows, -1 behind their blocks; row -1 is empty.");
}

void BindCopies(py::module_& m) {
  m.def(
      "copy_blocks",
      [](const py::sequence& planes, const py::object& pairs) {
        // Another thread may change the list meanwhile.
        const py::object held = py::isinstance<py::list>(planes) ? py::object(py::tuple(planes)) : py::object(planes);
        const auto views = PlanesOf(py::reinterpret_borrow<py::sequence>(held), "planes", true);
        const auto which = Pairs(pairs);
        const py::gil_scoped_release release;
        const absl::Status status = CopyBlocks(views, which);
        const py::gil_scoped_acquire acquire;
        Unwrap(status);
      },
      py::arg("planes"), py::arg("pairs"),
      "plane[destination] = plane[source] for each plane [blocks, ...] and each pair (source, destination).");
  m.def(
      "swap_blocks",
      [](const py::sequence& from, const py::sequence& to, const py::object& pairs) {
        const auto sources = PlanesOf(from, "source", false), destinations = PlanesOf(to, "destination", true);
        const std::vector<ConstBlocks> read(sources.begin(), sources.end());
        Unwrap(SwapBlocks(read, destinations, Pairs(pairs)));
      },
      py::arg("source"), py::arg("destination"), py::arg("pairs"),
      "destination[d] = source[s] between two memories, for all planes of both.");
  m.def(
      "fill_blocks",
      [](const py::sequence& planes, int64_t first, int64_t count, uint8_t value) {
        Unwrap(FillBlocks(PlanesOf(planes, "planes", true), first, count, std::byte{value}));
      },
      py::arg("planes"), py::arg("first"), py::arg("count"), py::arg("value") = 0xff,
      "Every byte of blocks [first, first + count); 0xff is NaN in every float format.");
  m.def(
      "transpose_blocks",
      [](const py::sequence& from, const PageLayout& source, const py::sequence& to, const PageLayout& destination,
         const py::object& pairs) {
        const auto sources = PlanesOf(from, "source", false), destinations = PlanesOf(to, "destination", true);
        const std::vector<ConstBlocks> read(sources.begin(), sources.end());
        Unwrap(TransposeBlocks({&source, read}, {&destination, destinations}, Pairs(pairs)));
      },
      py::arg("source"), py::arg("source_layout"), py::arg("destination"), py::arg("destination_layout"), py::arg("pairs"),
      "Whole blocks from one layout to another: planes [blocks, page_bytes] of each.");

  const auto part_of = [](const PageLayout& layout, const py::object& part, const py::sequence& planes, bool writeable) {
    const int64_t index = PartIndex(layout, part);
    const auto views = PlanesOf(planes, "planes", writeable);
    if (static_cast<int64_t>(views.size()) != layout.num_planes) {
      throw py::value_error("there are " + std::to_string(views.size()) + " planes; the layout has " + std::to_string(layout.num_planes));
    }
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i].page_bytes != layout.page_bytes[i]) {
        throw py::value_error("plane " + std::to_string(i) + " has pages of " + std::to_string(views[i].page_bytes) +
                              " bytes; the layout's have " + std::to_string(layout.page_bytes[i]));
      }
    }
    if (index < 0 || index >= layout.num_parts) {
      throw py::value_error("part " + std::to_string(index) + " is none of the layout's " + std::to_string(layout.num_parts));
    }
    const MutableBlocks& plane = views[static_cast<size_t>(layout.parts[static_cast<size_t>(index)].plane)];
    return Unwrap(RowsOf(layout, index, plane.bytes, plane.num_blocks, plane.block_stride));
  };
  m.def(
      "store_rows",
      [part_of](const py::array& rows, const py::object& slots, const py::sequence& planes, const PageLayout& layout,
                const py::object& part) {
        Unwrap(StoreRows(RowsOfArray(rows, "rows", false), std::span<const int64_t>(Integers<int64_t>(slots, "slots")),
                        part_of(layout, part, planes, true)));
      },
      py::arg("rows"), py::arg("slots"), py::arg("planes"), py::arg("layout"), py::arg("part") = 0,
      "Row i [tokens, ...] goes to slot slots[i] of a part; -1: nowhere.");
  m.def(
      "load_rows",
      [part_of](const py::sequence& planes, const PageLayout& layout, const py::object& slots, const py::array& rows,
                const py::object& part) {
        Unwrap(LoadRows(part_of(layout, part, planes, false), std::span<const int64_t>(Integers<int64_t>(slots, "slots")),
                       RowsOfArray(rows, "rows", true)));
      },
      py::arg("planes"), py::arg("layout"), py::arg("slots"), py::arg("rows"), py::arg("part") = 0,
      "rows[i] = the row of slot slots[i]; of -1 it stays as it is.");
  m.def(
      "load_stretches",
      [part_of](const py::sequence& planes, const PageLayout& layout, const py::array& table, const py::object& counts,
                const py::array& rows, const py::object& first, const py::object& part) {
        if (table.ndim() != 2) throw py::value_error("block_table must be [requests, blocks]");
        const auto entries = Integers<int32_t>(table, "block_table");
        const auto count = Integers<int64_t>(counts, "counts"),
                   begin = first.is_none() ? std::vector<int64_t>() : Integers<int64_t>(first, "first");
        Unwrap(LoadStretches(part_of(layout, part, planes, false), {{entries, table.shape(0), table.shape(1), table.shape(1)}, begin, count},
                            RowsOfArray(rows, "rows", true)));
      },
      py::arg("planes"), py::arg("layout"), py::arg("block_table"), py::arg("counts"), py::arg("rows"), py::arg("first") = py::none(),
      py::arg("part") = 0, "rows receives tokens [first[r], first[r] + counts[r]) of each request, one behind the other.");
}

void BindHybrid(py::module_& m) {
  py::class_<HybridPlan>(m, "HybridPlan", "The common page of groups of layers, and what each group's block holds.")
      .def_readonly("page_bytes", &HybridPlan::page_bytes)
      .def_readonly("common_block_size", &HybridPlan::common_block_size)
      .def_readonly("wasted", &HybridPlan::wasted, "Share of the pool that is padding.")
      .def_property_readonly("block_sizes", [](const HybridPlan& p) {
        std::vector<int64_t> out;
        for (const auto& g : p.groups) out.push_back(g.block_size);
        return out;
      })
      .def_property_readonly("padding_bytes", [](const HybridPlan& p) {
        std::vector<int64_t> out;
        for (const auto& g : p.groups) out.push_back(g.padding_bytes);
        return out;
      });
  m.def("plan_hybrid", [](const std::vector<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t>>& groups, int64_t alignment) {
    std::vector<HybridGroup> list;
    for (const auto& [name, page, block, multiple, layers] : groups) list.push_back({name, page, block, multiple, layers});
    return Unwrap(PlanHybrid(list, alignment));
  }, py::arg("groups"), py::arg("alignment") = 1, "groups: (name, page_bytes, block_size, max_multiple, layers) each.");
}

}  // namespace
}  // namespace jumar::memory::kv

PYBIND11_MODULE(jumar_kv, m) {
  m.doc() = "Pages of a KV cache: layouts, block tables, slot mapping, copies and transposition, for numpy arrays. Every index is checked.";
  jumar::memory::kv::BindLayouts(m);
  jumar::memory::kv::BindTables(m);
  jumar::memory::kv::BindCopies(m);
  jumar::memory::kv::BindHybrid(m);
}
