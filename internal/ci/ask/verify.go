package ask

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/cimeter/cimeter"
)

// Signed reports whether sum, in hexadecimal, is the HMAC-SHA256 of what was
// signed; it takes as long for every wrong one. Nothing is signed by an empty secret.
func Signed(secret, sum string, signed ...[]byte) bool {
	got, err := hex.DecodeString(sum)
	if err != nil || secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	for _, s := range signed {
		mac.Write(s)
	}
	return hmac.Equal(got, mac.Sum(nil))
}

// Same reports whether a text is the secret; it takes as long for every wrong one,
// as hashes are compared, which are of one length.
func Same(text, secret string) bool {
	a, b := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(secret))
	return hmac.Equal(a[:], b[:])
}

// Refuse is the error for a webhook of a CI that is not of who knows the secret.
func Refuse(ci, format string, args ...any) error {
	return fmt.Errorf("webhook of %s: %s: %w", ci, fmt.Sprintf(format, args...), cimeter.ErrUnauthorized)
}

// Secret asks for a secret and refuses the webhook where there is none.
func Secret(ci string, secret func() (string, error)) (string, error) {
	s, err := secret()
	switch {
	case err != nil:
		return "", fmt.Errorf("webhook of %s: read the secret: %w", ci, err)
	case s == "":
		return "", Refuse(ci, "there is no secret to verify by")
	}
	return s, nil
}
