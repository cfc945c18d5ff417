// Convolution and the operators of images that go with it: padding, unfolding, resampling.
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/conv_tbc.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/reflection_pad1d.h>
#include <ATen/ops/reflection_pad2d.h>
#include <ATen/ops/reflection_pad3d.h>
#include <ATen/ops/replication_pad1d.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest3d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/_upsample_nearest_exact1d.h>
#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact3d.h>

#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/wide.h"

namespace jumar::hostcann::aclnn {
namespace {

// A scale that isn't positive wasn't given: it follows from the sizes.
std::optional<double> Given(double scale) { return scale > 0 ? std::optional<double>(scale) : std::nullopt; }

}  // namespace

// cubeMathType, by which the caller lets the hardware lower the precision of fp32, is never used.
ACLNN_OP(Convolution, In(input), In(weight), OptIn(bias), Ints(stride), Ints(padding), Ints(dilation), Flag(transposed),
         Ints(output_padding), I64(groups), Out(out), I8(cube_math_type)) {
  Put(out, at::convolution(Wide(input), Wide(weight), Wide(bias), stride, padding, dilation, transposed, output_padding, groups));
}
// One filter per channel, or several.
ACLNN_OP(ConvDepthwise2d, In(self), In(weight), Ints(kernel_size), OptIn(bias), Ints(stride), Ints(padding), Ints(dilation),
         Out(out), I8(cube_math_type)) {
  const int64_t channels = self.size(self.dim() - 3);
  Require(weight.dim() == 4 && weight.size(1) == 1 && weight.size(0) % channels == 0, "weight has shape ", weight.sizes(),
          "; for ", channels, " channels it must be [a multiple of ", channels, ", 1, height, width]");
  Put(out, at::convolution(Wide(self), Wide(weight), Wide(bias), stride, padding, dilation, false, {0, 0}, channels));
}
ACLNN_OP(ConvTbc, In(self), In(weight), In(bias), I64(pad), Out(out), I8(cube_math_type)) {
  Put(out, at::conv_tbc(Wide(self), Wide(weight), Wide(bias), pad));
}
ACLNN_OP(Im2col, In(self), Ints(kernel_size), Ints(dilation), Ints(padding), Ints(stride), Out(out)) {
  Put(out, at::im2col(self, kernel_size, dilation, padding, stride));
}
ACLNN_OP(ChannelShuffle, In(self), I64(groups), Out(out)) { Put(out, at::channel_shuffle(self, groups)); }

#define PAD(Name, function) \
  ACLNN_OP(Name, In(self), Ints(padding), Out(out)) { Put(out, at::function(self, padding)); }
PAD(ReflectionPad1d, reflection_pad1d)
PAD(ReflectionPad2d, reflection_pad2d)
PAD(ReflectionPad3d, reflection_pad3d)
PAD(ReplicationPad1d, replication_pad1d)
PAD(ReplicationPad2d, replication_pad2d)
PAD(ReplicationPad3d, replication_pad3d)

// Resampling: the first number of a scale's name is the axis that it belongs to.
ACLNN_OP(UpsampleNearest1d, In(self), Ints(size), Out(out)) { Put(out, at::upsample_nearest1d(Wide(self), size)); }
ACLNN_OP(UpsampleNearest1dV2, In(self), Ints(size), F32(scale), Out(out)) {
  Put(out, at::upsample_nearest1d(Wide(self), size, Given(scale)));
}
ACLNN_OP(UpsampleNearest2d, In(self), Ints(size), Out(out)) { Put(out, at::upsample_nearest2d(Wide(self), size)); }
ACLNN_OP(UpsampleNearest2dV2, In(self), Ints(size), F32(scale_h), F32(scale_w), Out(out)) {
  Put(out, at::upsample_nearest2d(Wide(self), size, Given(scale_h), Given(scale_w)));
}
ACLNN_OP(UpsampleNearest3d, In(self), Ints(size), F64(scale_d), F64(scale_h), F64(scale_w), Out(out)) {
  Put(out, at::upsample_nearest3d(Wide(self), size, Given(scale_d), Given(scale_h), Given(scale_w)));
}
ACLNN_OP(UpsampleNearestExact1d, In(self), Ints(size), F64(scale), Out(out)) {
  Put(out, at::_upsample_nearest_exact1d(Wide(self), size, Given(scale)));
}
ACLNN_OP(UpsampleNearestExact2d, In(self), Ints(size), F64(scale_h), F64(scale_w), Out(out)) {
  Put(out, at::_upsample_nearest_exact2d(Wide(self), size, Given(scale_h), Given(scale_w)));
}
ACLNN_OP(UpsampleNearestExact3d, In(self), Ints(size), F64(scale_d), F64(scale_h), F64(scale_w), Out(out)) {
  Put(out, at::_upsample_nearest_exact3d(Wide(self), size, Given(scale_d), Given(scale_h), Given(scale_w)));
}
ACLNN_OP(UpsampleLinear1d, In(self), Ints(size), Flag(align_corners), F64(scale), Out(out)) {
  Put(out, at::upsample_linear1d(Wide(self), size, align_corners, Given(scale)));
}
#define UPSAMPLE_2D(Name, function)                                                                            \
  ACLNN_OP(Name, In(self), Ints(size), Flag(align_corners), F64(scale_h), F64(scale_w), Out(out)) {            \
    Put(out, at::function(Wide(self), size, align_corners, Given(scale_h), Given(scale_w)));                   \
  }
UPSAMPLE_2D(UpsampleBilinear2d, upsample_bilinear2d)
UPSAMPLE_2D(UpsampleBilinear2dAA, _upsample_bilinear2d_aa)
UPSAMPLE_2D(UpsampleBicubic2d, upsample_bicubic2d)
UPSAMPLE_2D(UpsampleBicubic2dAA, _upsample_bicubic2d_aa)
ACLNN_OP(UpsampleTrilinear3d, In(self), Ints(size), Flag(align_corners), F64(scale_d), F64(scale_h), F64(scale_w), Out(out)) {
  Put(out, at::upsample_trilinear3d(Wide(self), size, align_corners, Given(scale_d), Given(scale_h), Given(scale_w)));
}

ACLNN_OP(GridSampler2D, In(input), In(grid), I64(interpolation), I64(padding), Flag(align_corners), Out(out)) {
  Put(out, at::grid_sampler_2d(Wide(input), Wide(grid), interpolation, padding, align_corners));
}
ACLNN_OP(GridSampler3D, In(input), In(grid), I64(interpolation), I64(padding), Flag(align_corners), Out(out)) {
  Put(out, at::grid_sampler_3d(Wide(input), Wide(grid), interpolation, padding, align_corners));
}
ACLNN_OP(AffineGrid, In(theta), Ints(size), Flag(align_corners), Out(out)) {
  Put(out, at::affine_grid_generator(Wide(theta), size, align_corners));
}

}  // namespace jumar::hostcann::aclnn
