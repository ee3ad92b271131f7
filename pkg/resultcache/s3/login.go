package s3

import (
	"errors"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Login says where the credentials come from: with nothing set, as for Amazon's own tools, from the variables
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and else from the user's credentials file.
type Login struct {
	Anonymous bool   // none are needed
	File      string // in the form of ~/.aws/credentials; only that is looked at
	Profile   string // in the file; empty: AWS_PROFILE, or "default"
	// Role allows to ask the machine, container or cluster for the credentials of its role, if there are none elsewhere.
	Role bool
}

func (l Login) credentials() *credentials.Credentials {
	if l.Anonymous {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	s := &sources{}
	if l.File == "" {
		s.all = append(s.all, &credentials.EnvAWS{})
	}
	s.all = append(s.all, &credentials.FileAWSCredentials{Filename: l.File, Profile: l.Profile})
	if l.Role && l.File == "" {
		s.all = append(s.all, &credentials.IAM{})
	}
	return credentials.New(s)
}

// sources takes the credentials of the first source that has some. Unlike credentials.Chain, it does not send
// requests without a signature if none has, for which a server has only an unhelpful answer.
type sources struct {
	all  []credentials.Provider
	last credentials.Provider // which has had them
}

// RetrieveWithCredContext implements credentials.Provider. credentials.Credentials calls it by one goroutine at a
// time.
func (s *sources) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	for _, p := range s.all {
		if v, err := p.RetrieveWithCredContext(cc); err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			s.last = p
			return v, nil
		}
	}
	return credentials.Value{}, errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or cache.s3.credentials-file, or cache.s3.anonymous")
}

// Retrieve implements credentials.Provider.
func (s *sources) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (s *sources) IsExpired() bool { return s.last == nil || s.last.IsExpired() }
