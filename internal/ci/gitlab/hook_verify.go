package gitlab

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
)

const (
	// hookTolerance is how far a signed webhook's time may be from ours: what is older
	// is a replay, and ids are remembered for longer.
	hookTolerance = 5 * time.Minute
	// maxSignatures bounds a header webhook-signature: one for each key in a rotation.
	maxSignatures = 16

	signingPrefix = "whsec_"
)

// VerifyHook reports by nil that a webhook is of who knows one of the secrets; the
// error wraps [cimeter.ErrUnauthorized] and tells no secret. get returns a header's
// value, and body is as it came.
//
// A secret that begins with whsec_ is a signing token: the header webhook-signature
// has to hold HMAC-SHA256 over webhook-id, webhook-timestamp and body, and the time
// has to be within five minutes of now. Any other secret is compared with
// X-Gitlab-Token. All comparisons take the same time whatever is wrong.
func VerifyHook(secrets []string, get func(name string) string, body []byte, now time.Time) error {
	why := "no secret is set up"
	ok := false
	for _, secret := range secrets {
		var reason string
		switch key, signing := strings.CutPrefix(secret, signingPrefix); {
		case secret == "":
			continue
		case signing:
			reason = verifySigned(key, get, body, now)
		default:
			reason = verifyToken(secret, get("X-Gitlab-Token"))
		}
		if ok = ok || reason == ""; reason != "" {
			why = reason
		}
	}
	if ok {
		return nil
	}
	return fmt.Errorf("webhook: %s: %w", why, cimeter.ErrUnauthorized)
}

// verifyToken compares hashes, so that not even a length is told by the time it takes.
func verifyToken(secret, given string) (why string) {
	a, b := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
		return ""
	}
	if given == "" {
		return "no X-Gitlab-Token"
	}
	return "another X-Gitlab-Token"
}

func verifySigned(secret string, get func(string) string, body []byte, now time.Time) (why string) {
	key, err := base64.StdEncoding.DecodeString(secret)
	if err != nil || len(key) < 16 {
		return "the signing token is none: want whsec_ and the base64 of 32 bytes"
	}
	id, stamp, given := get("Webhook-Id"), get("Webhook-Timestamp"), get("Webhook-Signature")
	if id == "" || stamp == "" || given == "" {
		return "not signed: want webhook-id, webhook-timestamp and webhook-signature"
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	ok, n := 0, 0
	for s := range strings.FieldsSeq(given) {
		if n++; n > maxSignatures {
			break
		}
		version, text, _ := strings.Cut(s, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil {
			ok |= subtle.ConstantTimeCompare(got, want)
		}
	}
	if ok != 1 {
		return "another signature"
	}
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(at, 0)).Abs() > hookTolerance {
		return "signed at another time: want within 5 minutes"
	}
	return ""
}

// HookID is the id of a delivery, the same each time it is tried: of a signed one
// webhook-id, which the signature covers, else Idempotency-Key (GitLab 17.4); "" of
// older servers. X-Gitlab-Event-UUID is none: several webhooks share it.
func HookID(get func(name string) string) string {
	id := get("Idempotency-Key")
	if signed := get("Webhook-Id"); signed != "" && get("Webhook-Signature") != "" {
		id = signed
	}
	if len(id) > 256 {
		return ""
	}
	return id
}
