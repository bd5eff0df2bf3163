#pragma once

// How much a property test tries. Sanitizers look at memory and make everything many times slower;
// whether every case is right is for the builds without them.
namespace allrail::property {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kOneOf = 29;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr int kOneOf = 29;
#else
inline constexpr int kOneOf = 1;
#endif
#else
inline constexpr int kOneOf = 1;
#endif

/// Which cases of a long row are tried: every one, or one of kOneOf.
class Sample {
 public:
  bool takes_next() { return count_++ % kOneOf == 0; }

 private:
  int count_ = 0;
};

}  // namespace allrail::property
