# ubex with everything that the lock pins: docker build -t ubex . && docker run --rm ubex doctor
# For an NVIDIA GPU: docker build --build-arg EXTRA=cuda13 -t ubex-cuda . && docker run --rm --gpus all ubex-cuda doctor
FROM python:3.12-slim
ARG EXTRA=""
WORKDIR /ubex
COPY requirements.lock ./
RUN pip install --no-cache-dir -r requirements.lock
# jax's own extra, for the release of jax that the lock has put here
RUN if [ -n "$EXTRA" ]; then pip install --no-cache-dir -c requirements.lock "jax[$EXTRA]"; fi
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
RUN useradd --create-home ubex
USER ubex
WORKDIR /home/ubex
ENTRYPOINT ["ubex"]
