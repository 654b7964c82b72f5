package protoappend_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter/internal/protoappend"
)

// Lengths on both sides of each size of their own encoding, nested.
func TestClose(t *testing.T) {
	for _, n := range []int{0, 1, 126, 127, 128, 129, 16383, 16384, 1 << 21} {
		body := bytes.Repeat([]byte{7}, n)
		got, outer := protoappend.Open([]byte("before"), 3)
		got, inner := protoappend.Open(got, 2000)
		got = protoappend.Bytes(got, 1, body)
		got = protoappend.Close(got, inner)
		got = protoappend.Varint(got, 4, 5)
		got = protoappend.Close(got, outer)

		in := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), body)
		mid := protowire.AppendBytes(protowire.AppendTag(nil, 2000, protowire.BytesType), in)
		mid = protowire.AppendVarint(protowire.AppendTag(mid, 4, protowire.VarintType), 5)
		want := protowire.AppendBytes(protowire.AppendTag([]byte("before"), 3, protowire.BytesType), mid)
		if !bytes.Equal(got, want) {
			t.Errorf("a message of %d bytes is not what protowire makes", n)
		}
	}
}

func TestString_isUTF8(t *testing.T) {
	got := protoappend.String(nil, 1, "a\xff\xfeb")
	_, _, n := protowire.ConsumeTag(got)
	text, _ := protowire.ConsumeString(got[n:])
	if want := "a\uFFFDb"; text != want || strings.ToValidUTF8(text, "") != text {
		t.Errorf("%q, want %q", text, want)
	}
}
