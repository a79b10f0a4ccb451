// Decodes and emulates an instruction on tiles when it raises SIGILL.
#include "native/emulator/tiles/tile_emulator.h"

#if IMP_X86
#include <signal.h>
#include <ucontext.h>

#include <optional>

#include "native/emulator/tiles/tile_twin.h"

namespace imp {

namespace {

std::optional<cpu::TileTwin<>> emulated_tiles;

// An instruction with a VEX prefix of three bytes and an opcode of the map 0F38, as all those on tiles are.
struct TileInstruction {
  int opcode, prefix;  // of the opcode: 0 none, 2 F3, 3 F2
  int reg, rm, vvvv;   // tiles, unless `rm` is part of an address
  bool has_address;
  std::byte* address;     // without the index
  std::ptrdiff_t stride;  // the index times its scale
  int length;
};

std::optional<TileInstruction> decode(const std::uint8_t* code, const greg_t* registers) {
  constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  if (code[0] != 0xC4 || (code[1] & 31) != 2 || (code[2] & 0x84) != 0) return std::nullopt;
  const int b = (~code[1] >> 5 & 1) * 8, x = (~code[1] >> 6 & 1) * 8;
  const int mod = code[4] >> 6, rm = code[4] & 7;
  TileInstruction found{code[3], code[2] & 3, code[4] >> 3 & 7, rm, ~code[2] >> 3 & 15, mod != 3, nullptr, 0, 5};
  if (!found.has_address) return found;
  if (mod == 0 && rm == 5) return std::nullopt;  // relative to the instruction
  int base = rm + b;
  if (rm == 4) {
    const int sib = code[found.length++];
    const int index = (sib >> 3 & 7) + x;
    base = (sib & 7) + b;
    if (mod == 0 && (sib & 7) == 5) return std::nullopt;  // without a base
    if (index != 4) found.stride = registers[kRegisters[index]] << (sib >> 6);
  }
  std::int32_t displacement = 0;
  if (mod == 1) displacement = static_cast<std::int8_t>(code[found.length]);
  if (mod == 2) std::memcpy(&displacement, code + found.length, sizeof displacement);
  found.length += mod == 1 ? 1 : mod == 2 ? 4 : 0;
  found.address = reinterpret_cast<std::byte*>(registers[kRegisters[base]] + displacement);
  return found;
}

bool execute(const TileInstruction& found) {
  const auto is = [&](int opcode, int prefix, bool has_address) {
    return found.opcode == opcode && found.prefix == prefix && found.has_address == has_address;
  };
  if (is(0x49, 0, true)) {  // LDTILECFG
    emulated_tiles.emplace(*reinterpret_cast<const cpu::TileConfig*>(found.address + found.stride));
  } else if (is(0x49, 0, false)) {  // TILERELEASE
    emulated_tiles.reset();
  } else if (!emulated_tiles) {
    return false;
  } else if (is(0x49, 3, false)) {  // TILEZERO
    emulated_tiles->clear(found.reg);
  } else if (is(0x4B, 3, true)) {  // TILELOADD
    emulated_tiles->load(found.reg, found.address, found.stride);
  } else if (is(0x4B, 2, true)) {  // TILESTORED
    emulated_tiles->store(found.reg, found.address, found.stride);
  } else if (is(0x5E, 3, false)) {  // TDPBSSD
    emulated_tiles->add_products(found.reg, found.rm, found.vvvv);
  } else {
    return false;
  }
  return true;
}

void emulate(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto found = decode(reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]), registers);
  if (found && execute(*found)) {
    registers[REG_RIP] += found->length;
  } else {
    signal(SIGILL, SIG_DFL);  // the instruction ends the process when it is repeated
  }
}

}  // namespace

void run_with_emulated_tiles(void (*run)(const GemmArgs&), const GemmArgs& args) {
  struct sigaction handler = {}, before;
  handler.sa_sigaction = emulate;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &handler, &before);
  run(args);
  sigaction(SIGILL, &before, nullptr);
}

}  // namespace imp
#endif
